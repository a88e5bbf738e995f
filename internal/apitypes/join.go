package apitypes

import "github.com/trivet-project/trivet"

// JoinText returns the text that an operator carries to a new head: the pins of the cluster's CAs and a token to join
// once. That of a witness names the role, as a witness opens fewer ports.
func JoinText(trust, token, role string) string {
	if role == trivet.RoleWitness {
		token += "." + role
	}
	return trust + "." + token
}
