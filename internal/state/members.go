package state

import (
	"fmt"
	"iter"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/provision"
	"github.com/trivet-project/trivet/internal/store"
)

// A provision with spec.count is in index ByParent under its own name, and a member under the name and UID of the one
// that it is a member of, its own state, and its number, the highest first.

func parentKeys(p *trivet.Provision) []string {
	switch {
	case p.Spec.Count != nil:
		return []string{p.FullName() + endLabel}
	case p.Status.MemberOf != "":
		return []string{memberList(trivet.Resolve(p.Project, p.Status.MemberOf), p.Status.MemberOfUID,
			provision.StateOfMember(&p.Status)) + fmt.Sprintf("%08d", max(0, 99_999_999-p.MemberNumber()))}
	}
	return nil
}

func memberList(parent, uid string, state provision.MemberState) string {
	return parent + endLabel + uid + endLabel + string(state) + endLabel
}

// Parents yields the full names of the provisions that have members, also of those that were deleted.
func (t *Tables) Parents() iter.Seq[string] {
	return func(yield func(string) bool) {
		place := store.Position{}
		for {
			p := first(t.Provisions.Under(ByParent, "", place))
			if p == nil {
				return
			}
			name := p.FullName()
			if p.Spec.Count == nil {
				name = trivet.Resolve(p.Project, p.Status.MemberOf)
			}
			if !yield(name) {
				return
			}
			place = store.Position{Key: name + endSelector}
		}
	}
}

// Members yields the shared members of a provision that are in a state, those with the highest numbers first.
func (t *Tables) Members(parent *trivet.Provision, state provision.MemberState) iter.Seq[*trivet.Provision] {
	return t.Provisions.Under(ByParent, memberList(parent.FullName(), parent.UID, state), store.Position{})
}

// Orphans yields the shared members of provisions that had a name and were deleted. uid is that of the provision which
// has the name now; empty: there is none.
func (t *Tables) Orphans(parent, uid string) iter.Seq[*trivet.Provision] {
	all := parent + endLabel
	return func(yield func(*trivet.Provision) bool) {
		for p := range t.Provisions.Under(ByParent, all, store.Position{}) {
			if p.Status.MemberOf == "" { // the provision itself
				continue
			}
			if uid != "" && p.Status.MemberOfUID >= uid {
				break
			}
			if !yield(p) {
				return
			}
		}
		if uid == "" {
			return
		}
		for p := range t.Provisions.Under(ByParent, all, store.Position{Key: all + uid + endSelector}) {
			if !yield(p) {
				return
			}
		}
	}
}
