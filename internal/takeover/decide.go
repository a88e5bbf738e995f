package takeover

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/trivet-project/trivet"
)

// pair is the two full heads of a site, of which one may take over from the other. The witnesses are those that could
// give the other one a quorum.
type pair struct {
	own, other *trivet.Head
	witnesses  []*trivet.Head
}

// pairOf returns the heads of a takeover by a head. own is nil where it is not requested. It fails where the head could
// not take over, whatever happens.
func pairOf(heads []*trivet.Head, self string) (p pair, err error) {
	var full []*trivet.Head
	for _, h := range heads {
		switch {
		case h.Status.State == trivet.HeadRemoved:
		case h.Name == self:
			p.own = h
		case h.Spec.Role == trivet.RoleWitness:
			p.witnesses = append(p.witnesses, h)
		default:
			full = append(full, h)
		}
	}
	switch {
	case p.own == nil || p.own.Spec.Takeover == nil:
		return pair{}, nil
	case p.own.Spec.Remove || p.own.Status.State != trivet.HeadMember:
		return p, fmt.Errorf("%w: this head is %s", trivet.ErrConflict, stateOf(p.own))
	case len(full) == 0:
		return p, fmt.Errorf("%w: there is no other full head", trivet.ErrConflict)
	case len(full) > 1:
		return p, fmt.Errorf("%w: there are %d full heads, and only one of two takes over", trivet.ErrConflict,
			len(full)+1)
	}
	p.other = full[0]
	if p.other.Spec.BMC == nil {
		return p, fmt.Errorf("%w: the BMC of %s is not known: trivet head set %s --bmc ADDRESS --bmc-secret NAME",
			trivet.ErrConflict, p.other.Name, p.other.Name)
	}
	return p, nil
}

func stateOf(h *trivet.Head) string {
	if h.Spec.Remove {
		return "being removed"
	}
	return string(h.Status.State)
}

// silence is for how long there has been no quorum, in time in which this process ran.
type silence struct {
	lasted time.Duration
	last   time.Time // of the last observation
}

// maxPause is the time between two observations above which the process did not run: what it did not hear then was not
// lost.
const maxPause = 5 * stepInterval

// observe returns for how long there has been no quorum; 0: there is one.
func (s *silence) observe(now time.Time, quorum bool) time.Duration {
	passed := now.Sub(s.last)
	if quorum || s.last.IsZero() || passed > maxPause {
		s.lasted = 0
	} else {
		s.lasted += passed
	}
	s.last = now
	if !quorum {
		s.lasted = max(s.lasted, 1)
	}
	return s.lasted
}

// resume lets the time of a check or an attempt pass unnoticed.
func (s *silence) resume(now time.Time) { s.last = now }

// checkLost returns why the others are not lost: one of two full heads is lost where it does not respond, and no witness
// is connected to it.
func (k *Keeper) checkLost(ctx context.Context, p *pair) error {
	if k.cfg.Quorum() {
		return fmt.Errorf("%w: there is a quorum again", trivet.ErrConflict)
	}
	_, err := k.cfg.Ping(ctx, p.other)
	if !errors.Is(err, trivet.ErrUnavailable) {
		return fmt.Errorf("%w: %s responds, although this head is connected to no quorum; where it cannot be repaired, "+
			"stop it, and run trivet recover --from-survivor here", trivet.ErrConflict, p.other.Name)
	}
	for _, w := range p.witnesses {
		if quorum, err := k.cfg.Ping(ctx, w); err == nil && quorum {
			return fmt.Errorf("%w: the witness %s is connected to a leader, and this head is not", trivet.ErrConflict, w.Name)
		}
	}
	return nil
}
