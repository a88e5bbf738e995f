package apitypes

import "github.com/trivet-project/trivet"

// JoinText returns the text that an operator carries to a new head: the pins of the cluster's CAs and a token to join
// once. It names the role, unless that is a voter: a witness opens fewer ports.
func JoinText(trust, token, role string) string {
	if role != trivet.RoleVoter {
		token += "." + role
	}
	return trust + "." + token
}
