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
	Trust  string      // pins of the cluster's CAs
	ID     string      // of the token's record
	Secret auth.Secret // the token itself
	Role   string
}

// ParseToken parses what [apitypes.JoinText] wrote. The secret of one for a machine is a boot token.
func ParseToken(text string) (t Token, err error) {
	t.Role = trivet.RoleVoter
	text = strings.TrimSpace(text)
	for _, role := range []string{trivet.RoleStandby, trivet.RoleWitness} {
		if rest, ok := strings.CutSuffix(text, "."+role); ok {
			text, t.Role = rest, role
		}
	}
	trust, secret, ok := strings.Cut(text, ".")
	t.Trust, t.Secret = trust, auth.Secret(secret)
	if _, invalid := sdk.TLSConfig(trust); ok && invalid == nil && strings.HasPrefix(trust, "sha256:") {
		if t.ID, ok = auth.JoinID(secret); !ok {
			t.ID, err = auth.ParseToken(secret)
		}
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
