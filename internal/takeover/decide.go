package takeover

import (
	"context"
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
		case h.Spec.RoleOrDefault() == trivet.RoleWitness:
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

// silence is the time in which this process did not run: what it did not hear then was not lost.
type silence struct {
	last    time.Time // that it ran
	resumed time.Time // when it ran again after a pause
}

const (
	// maxPause is the time between two observations, by either clock, above which the process or its host did not run.
	maxPause = 5 * stepInterval
	// maxBehind is how long before the last response of the other head this one may have been current: it finds out every
	// 5 s.
	maxBehind = 20 * time.Second
	// maxSilence is how much longer than the time of a takeover the other head may have been silent: what it has
	// acknowledged to others in a longer time would be lost.
	maxSilence = 10 * time.Minute
)

func (s *silence) observe(now time.Time) {
	wall := now.Round(0).Sub(s.last.Round(0)) // without the monotonic clock, which may stop with the host
	if now.Sub(s.last) > maxPause || wall.Abs() > maxPause {
		s.resumed = now
	}
	s.last = now
}

// due reports whether the other head has been silent for long enough. It fails where this head is not the one to take
// over: what it has, and what it knows of the others, must be of the moment at which the other one was lost.
func (k *Keeper) due(now time.Time, p *pair) (bool, error) {
	current, heard := k.cfg.Current(), k.cfg.LastHeard(p.other.Name)
	after := p.own.Spec.Takeover.After.D()
	stale := func(why string) error {
		return fmt.Errorf("%w: this head %s, and may be behind; where it is to go on alone: trivet recover --from-survivor",
			trivet.ErrConflict, why)
	}
	switch {
	case current.IsZero():
		return false, stale("has not been connected to a quorum since it started")
	case current.Before(k.silence.resumed):
		return false, stale("has not been connected to a quorum since its process, or its host, was paused")
	case now.Sub(heard) < maxBehind && now.Sub(current) > after:
		return false, fmt.Errorf("%w: %s responds, and this head is connected to no quorum; where it cannot be repaired, "+
			"stop it, and run trivet recover --from-survivor here", trivet.ErrConflict, p.other.Name)
	case heard.Sub(current) > maxBehind:
		return false, stale(fmt.Sprintf("was not connected to a quorum when %s was last heard, at %s", p.other.Name,
			clock(heard)))
	case now.Sub(current) > after+maxSilence:
		return false, stale("has not been connected to a quorum since " + clock(current))
	}
	return now.Sub(current) >= after && now.Sub(heard) >= after, nil
}

func clock(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// checkLost returns why the others are not lost: one of two full heads is lost where it does not respond, and each
// witness says that it is connected to no leader.
func (k *Keeper) checkLost(ctx context.Context, p *pair) error {
	if k.cfg.Quorum() {
		return fmt.Errorf("%w: there is a quorum again", trivet.ErrConflict)
	}
	if responds, _, err := k.cfg.Ping(ctx, p.other); responds {
		return fmt.Errorf("%w: %s responds, although this head is connected to no quorum (%v); where it cannot be repaired, "+
			"stop it, and run trivet recover --from-survivor here", trivet.ErrConflict, p.other.Name, err)
	}
	for _, w := range p.witnesses {
		switch responds, quorum, err := k.cfg.Ping(ctx, w); {
		case !responds || err != nil:
			return fmt.Errorf("%w: the witness %s does not respond: it may be connected to %s", trivet.ErrUnavailable, w.Name,
				p.other.Name)
		case quorum:
			return fmt.Errorf("%w: the witness %s is connected to a leader, and this head is not", trivet.ErrConflict, w.Name)
		}
	}
	return nil
}
