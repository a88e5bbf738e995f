package auth

import (
	"fmt"
	"slices"

	"github.com/trivet-project/trivet"
)

// Role is what an account may do.
type Role string

// Verb is what a request does to records of a kind.
type Verb string

const (
	Admin    Role = "admin"    // everything
	Operator Role = "operator" // machines and what runs on them; not who may do what, nor the control plane itself
	Viewer   Role = "viewer"   // looks

	Read   Verb = "read"   // get, list, watch; never shows the value of a secret
	Write  Verb = "write"  // create, update, patch, delete
	Reveal Verb = "reveal" // see the value of a secret or token in the clear
)

// adminKinds are written by admins only: they decide who may do what, and what the control plane is.
var adminKinds = []trivet.Kind{"Account", "Token", "Secret", "Head", "Site"}

// Allow says whether an account of this role may do this, as nil or [trivet.ErrForbidden]. What is not known is
// forbidden.
func Allow(role Role, verb Verb, kind trivet.Kind) error {
	if allowed(role, verb, kind) {
		return nil
	}
	return fmt.Errorf("%s %s: %w to role %q (ask an admin, or use another token)", verb, kind, trivet.ErrForbidden, role)
}

func allowed(role Role, verb Verb, kind trivet.Kind) bool {
	switch verb {
	case Read:
		return role == Viewer || role == Operator || role == Admin
	case Write:
		return role == Admin || role == Operator && !slices.Contains(adminKinds, kind)
	case Reveal:
		return role == Admin
	}
	return false
}
