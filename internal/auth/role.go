package auth

import (
	"fmt"
	"slices"

	"github.com/trivet-project/trivet"
)

// Verb is an operation on records of a kind.
type Verb string

// The verbs.
const (
	Read   Verb = "read"   // get, list, watch; never shows the value of a secret
	Write  Verb = "write"  // create, update, patch, delete
	Reveal Verb = "reveal" // read the value of a secret or token in plain text
)

// Allow returns [trivet.ErrForbidden] unless an account of this role may do this to records of a kind, as
// [trivet.Kinds] lists it. An empty kind means what every account may read. Unknown roles, verbs and kinds are
// forbidden.
func Allow(role trivet.AccountRole, verb Verb, kind trivet.Kind) error {
	if allowed(role, verb, kind) {
		return nil
	}
	return fmt.Errorf("%s %s: %w to role %q (ask an admin, or use another token)", verb, kind, trivet.ErrForbidden,
		role)
}

func allowed(role trivet.AccountRole, verb Verb, kind trivet.Kind) bool {
	if kind == "" {
		return verb == Read && role.Includes(trivet.AccountViewer)
	}
	i := slices.IndexFunc(trivet.Kinds, func(k trivet.KindInfo) bool { return k.Kind == kind })
	if i < 0 {
		return false
	}
	switch verb {
	case Read:
		return role.Includes(trivet.Kinds[i].Reader)
	case Write:
		return role.Includes(trivet.Kinds[i].Writer)
	case Reveal:
		return role.Includes(trivet.AccountAdmin)
	}
	return false
}
