package membership

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/cluster"
	"github.com/trivet-project/trivet/internal/peer"
)

// StoreMembers is the membership of the store, as [cluster.Member] has it.
type StoreMembers interface {
	Peers() []cluster.Peer
	Promote(ctx context.Context, id uint64) error
	Remove(ctx context.Context, id uint64) error
	IsLeader() bool
}

// Reconciler promotes heads that joined to voters, and removes those whose removal was requested. Both may run more
// than once, on several heads.
type Reconciler struct {
	Records  *Records
	Members  StoreMembers
	Statuses func() map[string]peer.Status // of the other heads, by name
}

const (
	// pendingInterval is how often a head that joins or is removed is reconciled, steadyInterval how often another
	// one.
	pendingInterval, steadyInterval = time.Second, 30 * time.Second
	// witnessPoll is how often the status of a witness is compared with its record.
	witnessPoll = 5 * time.Second
	// reconcileTimeout bounds one change of the store's members: of two at once the store drops one without a
	// response.
	reconcileTimeout = 3 * time.Second
)

// Reconcile takes the next step for one head. again is when to reconcile it again; 0: when it changes.
func (c *Reconciler) Reconcile(ctx context.Context, name string) (again time.Duration, err error) {
	rec, err := c.Records.Heads.Get(name)
	if err != nil {
		return 0, nil
	}
	change, cancel := context.WithTimeout(ctx, reconcileTimeout)
	defer cancel()
	switch {
	case rec.Status.State == trivet.HeadRemoved: // a member may have been added for it while it was removed
		if err = c.removeOrphans(change, rec); err == nil {
			return steadyInterval, nil
		}
	case rec.Spec.Remove:
		err = c.remove(change, rec)
	case rec.Status.State == trivet.HeadJoining:
		err = c.promote(change, rec)
	case rec.Status.Reason != "":
		return steadyInterval, c.clearReason(ctx, name)
	case rec.Spec.RoleOrDefault() == trivet.RoleWitness:
		return witnessPoll, errors.Join(c.updateWitness(ctx, rec), c.Records.RaiseClusterVersion(ctx))
	default:
		return steadyInterval, c.Records.RaiseClusterVersion(ctx)
	}
	if errors.Is(err, trivet.ErrConflict) || errors.Is(err, trivet.ErrUnavailable) {
		return pendingInterval, c.setReason(ctx, name, err)
	}
	return 0, err
}

func (c *Reconciler) setState(ctx context.Context, name string, s trivet.HeadState) error {
	return c.Records.Update(ctx, name, func(rec *trivet.Head) bool {
		changed := rec.Status.State != s
		rec.Status.State, rec.Status.Reason = s, ""
		return changed
	})
}

// clearReason clears the reason of a member, which another head may have written late.
func (c *Reconciler) clearReason(ctx context.Context, name string) error {
	return c.Records.Update(ctx, name, func(rec *trivet.Head) bool {
		changed := rec.Status.State == trivet.HeadMember && !rec.Spec.Remove && rec.Status.Reason != ""
		rec.Status.Reason = ""
		return changed
	})
}

// setReason writes why a head is not a member yet, or not removed yet. Only the leader's head does, as others may get
// another error.
func (c *Reconciler) setReason(ctx context.Context, name string, reason error) error {
	if !c.Members.IsLeader() {
		return nil
	}
	return c.Records.Update(ctx, name, func(rec *trivet.Head) bool {
		pending := rec.Status.State == trivet.HeadJoining || rec.Spec.Remove && rec.Status.State != trivet.HeadRemoved
		changed := pending && rec.Status.Reason != reason.Error()
		rec.Status.Reason = reason.Error()
		return changed
	})
}

// witnessChanged reports whether a witness reports something else than is recorded.
func witnessChanged(rec *trivet.Head, s *peer.Status) bool {
	return !s.Started.Equal(rec.Status.Started) || s.Version != rec.Status.Version ||
		!slices.Equal(s.CAs, rec.Status.CAs) ||
		s.Program != nil && (rec.Status.Program == nil || *s.Program != *rec.Status.Program)
}

// casOf returns the pins that a witness reports, if they can be pins.
func casOf(s *peer.Status) []string {
	if len(s.CAs) > 2 || slices.ContainsFunc(s.CAs, func(pin string) bool { return client.ValidatePin(pin) != nil }) {
		return nil
	}
	return s.CAs
}

// updateWitness writes the status of a witness, which cannot write.
func (c *Reconciler) updateWitness(ctx context.Context, rec *trivet.Head) error {
	s, ok := c.Statuses()[rec.Name]
	s.CAs, s.Program = casOf(&s), programOf(&s)
	if !ok || s.Started.IsZero() || !witnessChanged(rec, &s) {
		return nil
	}
	return c.Records.Update(ctx, rec.Name, func(rec *trivet.Head) bool {
		changed := witnessChanged(rec, &s)
		rec.Status.Started, rec.Status.Version = s.Started, s.Version
		rec.Status.StoredCAs, rec.Status.CAs = s.CAs, s.CAs
		if s.Program != nil {
			rec.Status.Program = s.Program
		}
		return changed
	})
}
