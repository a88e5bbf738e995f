package membership

import (
	"fmt"
	"strings"

	"github.com/trivet-project/trivet"
	sdk "github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/auth"
)

// Token is what an operator carries from a head to a new one: the identity of the cluster, and the right to join it
// once in a role.
type Token struct {
	Pin    string      // of the cluster's CA
	ID     string      // of the token's record
	Secret auth.Secret // the token itself
	Role   string
}

// ParseToken parses what [apitypes.JoinText] wrote.
func ParseToken(text string) (t Token, err error) {
	t.Role = trivet.RoleVoter
	text = strings.TrimSpace(text)
	if rest, ok := strings.CutSuffix(text, "."+trivet.RoleWitness); ok {
		text, t.Role = rest, trivet.RoleWitness
	}
	pin, secret, ok := strings.Cut(text, ".")
	t.Pin, t.Secret = pin, auth.Secret(secret)
	if ok && sdk.ValidatePin(pin) == nil {
		t.ID, err = auth.ParseToken(secret)
	}
	if t.ID == "" || err != nil {
		problem := "it is not of the form sha256:<pin>.trivet_<id>_<secret>"
		if text == "" {
			problem = "there is none"
		}
		return Token{}, &trivet.Error{Op: "read the join token", Err: fmt.Errorf("%w: %s", trivet.ErrInvalid, problem),
			Hint: "get one on a head of the cluster with 'trivet head token', and pass it by --token or " +
				"TRIVET_JOIN_TOKEN"}
	}
	return t, nil
}
