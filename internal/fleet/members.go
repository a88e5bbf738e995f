package fleet

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/provision"
	"github.com/trivet-project/trivet/internal/store"
)

// The counts of a provision's members are kept by each transaction that changes a member, so that how many of them wait
// and run is decided by compare, and not by a list.

// errHeldBack means that a member must not begin now: as many as spec.maxInFlight do, or its provision is gone.
var errHeldBack = fmt.Errorf("%w: as many members as spec.maxInFlight wait or run already", trivet.ErrConflict)

// putProvision writes a provision and, where it is a member, the counts that it is one of. Every change of the status
// of a provision is written by it.
func (f *Fleet) putProvision(tx *store.Tx, p *trivet.Provision) error {
	if p.Status.MemberOf != "" {
		was, err := f.Provisions.In(tx).Get(p.FullName())
		if err != nil {
			return err
		}
		from, to := provision.StateOfMember(&was.Status), provision.StateOfMember(&p.Status)
		if err := f.recount(tx, p, from, to); err != nil {
			return err
		}
	}
	return f.Provisions.In(tx).Put(p)
}

// Leave takes a provision that is being deleted out of the counts that it is one of. It is part of the transaction that
// deletes it.
func (f *Fleet) Leave(tx *store.Tx, p *trivet.Provision) error {
	if p.Status.MemberOf == "" {
		return nil
	}
	return f.recount(tx, p, provision.StateOfMember(&p.Status), provision.NoMember)
}

// recount moves a member from one state to another.
func (f *Fleet) recount(tx *store.Tx, member *trivet.Provision, from, to provision.MemberState) error {
	if from == to {
		return nil
	}
	if err := enterLane(tx.Context(), trivet.Resolve(member.Project, member.Status.MemberOf)); err != nil {
		return err
	}
	parent, err := f.parentOf(tx, member)
	if err != nil {
		return err
	}
	if parent == nil { // it will be deleted
		if to == provision.MemberRunning {
			return errHeldBack
		}
		return nil
	}
	counts, ok := provision.Move(&parent.Spec, parent.Status.Members, from, to)
	if !ok {
		return errHeldBack
	}
	return f.putCounts(tx, parent, counts)
}

// parentOf returns the provision that another one is a member of; nil where it does not exist any more.
func (f *Fleet) parentOf(tx *store.Tx, member *trivet.Provision) (*trivet.Provision, error) {
	parent, err := f.Provisions.In(tx).Get(trivet.Resolve(member.Project, member.Status.MemberOf))
	if errors.Is(err, trivet.ErrNotFound) || err == nil &&
		(parent.UID != member.Status.MemberOfUID || parent.Spec.Count == nil) {
		return nil, nil
	}
	return parent, err
}

// putCounts writes the counts of a provision and what follows from them.
func (f *Fleet) putCounts(tx *store.Tx, parent *trivet.Provision, counts trivet.MemberCounts) error {
	st := &parent.Status
	st.Members = counts
	if st.State != trivet.ProvisionFrozen { // an operator decides
		st.State, st.Reason = provision.Summary(&parent.Spec, counts)
	}
	if st.Started.IsZero() && counts.Running > 0 {
		st.Started = f.now()
	}
	switch {
	case !st.State.Ended():
		st.Ended = time.Time{}
	case st.Ended.IsZero():
		st.Ended = f.now()
	}
	return f.Provisions.In(tx).Put(parent)
}

// Bounds of one step of SettleMembers.
const (
	maxCreated = 16 // members that one transaction creates
	maxDeleted = 32 // members that are deleted, each in a transaction of its own
)

// SettleMembers creates or deletes some members of a provision, where it has too few or too many, and deletes those of
// one that was deleted. more: there is more to do.
func (f *Fleet) SettleMembers(ctx context.Context, name string) (more bool, err error) {
	parent, err := f.Provisions.GetShared(name)
	if errors.Is(err, trivet.ErrNotFound) || err == nil && parent.Spec.Count == nil {
		return f.deleteSome(ctx, f.Orphans(name, ""), f.isOrphan)
	}
	if err != nil {
		return false, err
	}
	if more, err := f.deleteSome(ctx, f.Orphans(name, parent.UID), f.isOrphan); more || err != nil {
		return more, err
	}
	switch plan := provision.PlanMembers(&parent.Spec, parent.Status.Members); {
	case parent.Status.State == trivet.ProvisionFrozen:
		return false, nil
	case plan.DeleteWaiting > 0:
		return f.deleteSome(ctx, some(f.Members(parent, provision.MemberWaiting), plan.DeleteWaiting), f.isExcess)
	case plan.DeleteFailed > 0:
		return f.deleteSome(ctx, some(f.Members(parent, provision.MemberFailed), plan.DeleteFailed), f.isExcess)
	case plan.Create > 0:
		return true, f.createMembers(ctx, parent, min(plan.Create, maxCreated))
	}
	return false, f.update(ctx, func(tx *store.Tx) error { // the spec may have changed
		p, err := f.Provisions.In(tx).Get(name)
		if errors.Is(err, trivet.ErrNotFound) ||
			err == nil && (p.Spec.Count == nil || p.Status.State == trivet.ProvisionFrozen) {
			return errUnchanged
		}
		if err != nil {
			return err
		}
		if state, reason := provision.Summary(&p.Spec, p.Status.Members); state == p.Status.State &&
			reason == p.Status.Reason {
			return errUnchanged
		}
		return f.putCounts(tx, p, p.Status.Members)
	})
}

// some yields the first records of a sequence.
func some[T any](all iter.Seq[T], n int) iter.Seq[T] {
	return func(yield func(T) bool) {
		for v := range all {
			if n--; n < 0 || !yield(v) {
				return
			}
		}
	}
}

// createMembers creates so many members in one transaction, or fewer where their specs are large.
func (f *Fleet) createMembers(ctx context.Context, parent *trivet.Provision, n int) (err error) {
	for ; n > 0; n /= 2 {
		numbers := f.unusedNumbers(parent, n)
		err = f.update(ctx, func(tx *store.Tx) error { return f.createIn(tx, parent.FullName(), numbers) })
		if !errors.Is(err, trivet.ErrTooLarge) {
			return err
		}
	}
	return err
}

// unusedNumbers proposes numbers of members that do not exist: the next ones and, when the count is reached, those of
// members that were deleted. It reads few records where none was deleted.
func (f *Fleet) unusedNumbers(parent *trivet.Provision, n int) (numbers []int) {
	unused := func(number int) bool {
		_, err := f.Provisions.GetShared(trivet.FullName(parent.Project, trivet.MemberName(parent.Name, number)))
		return errors.Is(err, trivet.ErrNotFound)
	}
	count, next := *parent.Spec.Count, parent.Status.Members.Total()+1
	try := func(from, to int) { // the numbers of provisions that are no members of it are used, too
		for number := from; number <= to && len(numbers) < n; number++ {
			if unused(number) {
				numbers = append(numbers, number)
			}
		}
	}
	try(next, count)
	try(1, next-1)
	try(max(count, next)+1, max(count, next)+trivet.MaxCount)
	return numbers
}

// createIn creates members with some numbers, as far as the provision is to have more.
func (f *Fleet) createIn(tx *store.Tx, name string, numbers []int) error {
	if err := enterLane(tx.Context(), name); err != nil {
		return err
	}
	parent, err := f.Provisions.In(tx).Get(name)
	if errors.Is(err, trivet.ErrNotFound) ||
		err == nil && (parent.Spec.Count == nil || parent.Status.State == trivet.ProvisionFrozen) {
		return errUnchanged
	}
	if err != nil {
		return err
	}
	counts := parent.Status.Members
	create := provision.PlanMembers(&parent.Spec, counts).Create
	for _, number := range numbers[:min(create, len(numbers))] {
		err := f.Provisions.In(tx).Create(memberOf(parent, number))
		if errors.Is(err, trivet.ErrExists) { // another head was first
			continue
		}
		if err != nil {
			return err
		}
		counts.Waiting++
	}
	if counts == parent.Status.Members {
		return errUnchanged
	}
	return f.putCounts(tx, parent, counts)
}

// memberOf returns a new member of a provision.
func memberOf(parent *trivet.Provision, number int) *trivet.Provision {
	spec := parent.Spec
	spec.Count, spec.MaxInFlight = nil, 0
	if host, domain, ok := strings.Cut(spec.Hostname, "."); spec.Hostname != "" {
		spec.Hostname = trivet.MemberName(host, number)
		if ok {
			spec.Hostname += "." + domain
		}
	}
	return &trivet.Provision{Spec: spec,
		Meta: trivet.Meta{Kind: "Provision", Project: parent.Project, Name: trivet.MemberName(parent.Name, number),
			Labels: parent.Labels},
		Status: trivet.ProvisionStatus{MemberOf: parent.Name, MemberOfUID: parent.UID}}
}

// deleteSome deletes the first of some members, each in its own transaction. may decides on each, in the transaction.
func (f *Fleet) deleteSome(ctx context.Context, members iter.Seq[*trivet.Provision],
	may func(tx *store.Tx, p *trivet.Provision) (bool, error)) (more bool, err error) {
	var names []string
	for p := range some(members, maxDeleted) {
		names = append(names, p.FullName())
	}
	for _, name := range names {
		err = errors.Join(err, f.update(ctx, func(tx *store.Tx) error { return f.deleteIn(tx, name, may) }))
	}
	return len(names) > 0, err
}

func (f *Fleet) deleteIn(tx *store.Tx, name string, may func(tx *store.Tx, p *trivet.Provision) (bool, error)) error {
	p, err := f.Provisions.In(tx).Get(name)
	if errors.Is(err, trivet.ErrNotFound) {
		return errUnchanged
	}
	if err != nil {
		return err
	}
	ok, err := may(tx, p)
	if err != nil {
		return err
	}
	if !ok {
		return errUnchanged
	}
	return errors.Join(f.Release(tx, p), f.removeProvision(tx, p))
}

// removeProvision deletes the record of a provision that has no machine any more.
func (f *Fleet) removeProvision(tx *store.Tx, p *trivet.Provision) error {
	return errors.Join(f.Leave(tx, p), f.Provisions.In(tx).Delete(p.FullName()))
}

// isOrphan reports whether a member's provision does not exist any more.
func (f *Fleet) isOrphan(tx *store.Tx, p *trivet.Provision) (bool, error) {
	parent, err := f.parentOf(tx, p)
	return p.Status.MemberOf != "" && parent == nil && err == nil, err
}

// isExcess reports whether a member is one of those of which its provision has too many.
func (f *Fleet) isExcess(tx *store.Tx, p *trivet.Provision) (bool, error) {
	parent, err := f.parentOf(tx, p)
	if err != nil || parent == nil {
		return false, err
	}
	plan := provision.PlanMembers(&parent.Spec, parent.Status.Members)
	switch provision.StateOfMember(&p.Status) {
	case provision.MemberWaiting:
		return plan.DeleteWaiting > 0, nil
	case provision.MemberFailed:
		return plan.DeleteFailed > 0, nil
	}
	return false, nil
}
