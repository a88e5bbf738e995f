package membership

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/cluster"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
)

// Records is the heads' records. It has one method for each transaction.
type Records struct {
	*state.Tables
	self string // this head's name
	now  func() time.Time
}

// NewRecords returns the records of the heads. self is the name of this head.
func NewRecords(tables *state.Tables, self string) *Records {
	return &Records{Tables: tables, self: self, now: time.Now}
}

// errUnchanged ends a transaction that has nothing to write.
var errUnchanged = errors.New("nothing to write")

// update runs a transaction. One that has nothing to write succeeds.
func (r *Records) update(ctx context.Context, do func(tx *store.Tx) error) error {
	if _, err := r.Store.Update(ctx, do); err != nil && !errors.Is(err, errUnchanged) {
		return err
	}
	return nil
}

// Update changes one head's record in one transaction. do reports whether there is anything to write.
func (r *Records) Update(ctx context.Context, name string, do func(h *trivet.Head) (changed bool)) error {
	return r.update(ctx, func(tx *store.Tx) error {
		h, err := r.Heads.In(tx).Get(name)
		if err != nil {
			return err
		}
		if !do(h) {
			return errUnchanged
		}
		return r.Heads.In(tx).Put(h)
	})
}

// Others returns the URLs of all other heads and witnesses that are not removed, by name.
func (r *Records) Others() map[string]string {
	urls := map[string]string{}
	for h := range r.Heads.AllShared() {
		if h.Name != r.self && h.Status.State != trivet.HeadRemoved && h.Status.Peer != "" {
			urls[h.Name] = h.Status.Peer
		}
	}
	return urls
}

// Removed reports whether a head was removed, by this head's copy of the records. Removal is final. Of a head that was
// removed long ago there is no record any more, but its name is among those that were assigned.
func (r *Records) Removed(head string) bool {
	h, err := r.Heads.GetShared(head)
	if err == nil {
		return h.Status.State == trivet.HeadRemoved
	}
	if !r.assigned(head) {
		return false
	}
	_, err = r.Heads.GetShared(head) // a name is assigned in the transaction that creates the record
	return errors.Is(err, trivet.ErrNotFound)
}

// assigned reports whether a name was assigned to a head.
func (r *Records) assigned(head string) bool {
	site, err := r.Sites.GetShared(trivet.SiteName)
	number, found := strings.CutPrefix(head, headPrefix)
	n, failed := strconv.Atoi(number)
	return err == nil && found && failed == nil && n >= 0 && n < site.Status.HeadNames && headName(n) == head
}

// headName returns the name of a head by its number.
func headName(n int) string { return fmt.Sprint(headPrefix, n) }

const headPrefix = "head"

// errRemovedHead is the cause of the error of a removed head.
var errRemovedHead = fmt.Errorf("%w: it was removed from this cluster", trivet.ErrForbidden)

// Verifier is the records and the store's members, by which a head verifies that others are members.
type Verifier struct {
	Records *Records
	Members interface {
		Peers() []cluster.Peer
		HasLeader() bool
	}
}

// VerifyMember returns nil for a member, and ErrForbidden for a head that was removed or is not known.
func (v *Verifier) VerifyMember(head string) error {
	h, err := v.Records.Heads.GetShared(head)
	if errors.Is(err, trivet.ErrNotFound) || err == nil && h.Status.State == trivet.HeadRemoved {
		return errRemoved(head)
	}
	return err
}

// VerifyNotRemoved returns ErrForbidden for a head that is known not to be a member: it was removed; or the member that
// it reports is that of its record and is not one of the store's members, and this head is connected to a leader. (A
// copy that lags does not have that record yet.)
func (v *Verifier) VerifyNotRemoved(head, member string) error {
	if v.Records.Removed(head) {
		return errRemoved(head)
	}
	h, err := v.Records.Heads.GetShared(head)
	switch {
	case err != nil:
		return nil
	case member == "" || h.Status.Member != member || !v.Members.HasLeader() || hasMember(v.Members.Peers(), member):
		return nil
	}
	return errRemoved(head)
}

// VerifyListed returns nil for a head that may have a list of the store's members: one that has a record and is not
// removed. The record of one that joins may be missing in a copy that lags.
func (v *Verifier) VerifyListed(head, member string) error {
	if err := v.VerifyNotRemoved(head, member); err != nil {
		return err
	}
	_, err := v.Records.Heads.GetShared(head)
	if errors.Is(err, trivet.ErrNotFound) {
		return errUnknownHead(head)
	}
	return err
}

// WitnessVerifier verifies members by the store's members only: a witness has no records. Its refusals are not final,
// as its copy may lag.
type WitnessVerifier struct {
	Members interface{ Peers() []cluster.Peer }
}

// VerifyMember returns nil for a member, or while a member that has not started yet may be it.
func (v *WitnessVerifier) VerifyMember(head string) error {
	if !slices.ContainsFunc(v.Members.Peers(), func(p cluster.Peer) bool { return p.Name == head || p.Name == "" }) {
		return errUnknownHead(head)
	}
	return nil
}

// VerifyNotRemoved does the same.
func (v *WitnessVerifier) VerifyNotRemoved(head, _ string) error { return v.VerifyMember(head) }

// errUnknownHead is the error of a head that is not known as a member; it may be retried.
func errUnknownHead(head string) error {
	return fmt.Errorf("verify membership: %w: %.60q is not known as a member here", trivet.ErrUnavailable, head)
}

func hasMember(peers []cluster.Peer, member string) bool {
	for _, p := range peers {
		if cluster.FormatID(p.ID) == member {
			return true
		}
	}
	return false
}

// memberOf returns the ID of the member of a head's record.
func memberOf(h *trivet.Head) (uint64, error) {
	id, err := cluster.ParseID(h.Status.Member)
	if err != nil {
		return 0, fmt.Errorf("head %s: %w", h.Name, err)
	}
	return id, nil
}
