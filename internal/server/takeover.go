package server

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/bmc"
	"github.com/trivet-project/trivet/internal/membership"
	"github.com/trivet-project/trivet/internal/peer"
	"github.com/trivet-project/trivet/internal/recovery"
	"github.com/trivet-project/trivet/internal/takeover"
)

// errTakeOver ends a head that starts again to take over: without a drain, as the decision holds for a short time.
var errTakeOver = fmt.Errorf("%w: it takes over", ErrRestart)

// newTakeover returns what lets this head take over from the other one.
func (s *Server) newTakeover() *takeover.Keeper {
	return takeover.New(takeover.Config{
		Head:   s.local.Name(),
		Heads:  func() []*trivet.Head { return slices.Collect(s.fleet.Heads.AllShared()) },
		Quorum: s.member.HasLeader, Current: s.member.Current,
		LastHeard: func(head string) time.Time { return s.monitor.Statuses()[head].LastAnswered },
		Ping: func(ctx context.Context, h *trivet.Head) (responds, quorum bool, err error) {
			info, err := s.local.Client().Ping(ctx, h.Status.Peer)
			return !peer.IsSilent(err), info.Leader != "", err
		},
		BMC: s.openBMCOf, Reach: s.reach, Ready: s.canTakeOver,
		Begin: func(cause string) error {
			err := takeover.Write(s.cfg.Dir, s.local.Incarnation(), cause)
			if err == nil {
				s.restart(errTakeOver)
			}
			return err
		},
		Log: s.cfg.Log.With("part", "takeover"),
	})
}

// openBMCOf opens the BMC of the host of a head.
func (s *Server) openBMCOf(ctx context.Context, h *trivet.Head) (bmc.Client, error) {
	cfg, err := s.fleet.BMCOf(h.Spec.BMC, unsealer(s.local.Keys()))
	if err != nil {
		return nil, err
	}
	cfg.Commands = s.cfg.PowerCommands
	c, err := bmc.Open(ctx, cfg)
	s.bmcErrors.Failed("takeover", err)
	return c, err
}

// reach returns why a host does not respond. The shared address responds wherever one of the heads holds it.
func (s *Server) reach(ctx context.Context, host netip.Addr) error {
	if s.cfg.VIP != "" && s.cfg.vip().Addr() == host {
		return fmt.Errorf("%w: it is the shared address of the heads", trivet.ErrInvalid)
	}
	return takeover.Echo(ctx, host)
}

// canTakeOver returns why a recovery from the data of this head would fail, or is not to begin by itself.
func (s *Server) canTakeOver() error {
	u, err := s.fleet.Upgrades.GetShared(trivet.UpgradeName)
	if err == nil && u.InProgress() {
		return fmt.Errorf("%w: an upgrade is in progress, in which heads start again", trivet.ErrConflict)
	}
	return errors.Join(s.member.Err(), takeover.CheckStamp(s.cfg.Dir), recovery.CheckSpace(s.cfg.Dir))
}

// takeOver carries out the decision of this head's last run to take over: it recovers the cluster from its own data,
// and then starts as its first head. A decision that is too old, or refused, is dropped. Where the recovery fails, this
// head starts as it is, and an operator decides.
func (c *Config) takeOver(ctx context.Context) error {
	order, err := takeover.Read(c.Dir)
	if err != nil {
		c.Log.Error("cannot read the decision to take over; it is ignored", "error", err)
	}
	if err != nil || order == nil {
		return nil
	}
	ready, err := recovery.GiveUp(c.Dir) // or it only remains to be completed
	if err != nil {
		return err
	}
	if ready && order.Check(c.Dir) != nil { // the other head may be on again
		if err := recovery.Abandon(c.Dir); err != nil {
			return err
		}
		ready = false
	}
	if !ready && !c.mayTakeOver(order) {
		return takeover.Remove(c.Dir)
	}
	plan, err := recovery.FromData(ctx, c.Dir, recovery.Request{Dir: c.Dir, Version: c.Version, Cause: order.Cause,
		Confirm: func() error { return order.Check(c.Dir) },
		Approve: func(p *recovery.Plan) error {
			c.Log.Warn("taking over: recovering the cluster from the data of this head", "cause", p.Cause,
				"dataTime", p.DataTime, "revision", p.Revision, "incarnation", p.Incarnation, "frozen", p.FrozenCount)
			return nil
		}})
	switch {
	case err == nil:
		c.Log.Warn("took over", "head", plan.Head, "incarnation", plan.Incarnation)
		return takeover.Remove(c.Dir)
	case ctx.Err() != nil:
		return err
	}
	c.Log.Error("cannot take over; where the other head is lost: trivet recover --from-survivor", "error", err)
	if ready, failed := recovery.GiveUp(c.Dir); ready || failed != nil {
		return fmt.Errorf("take over: %w", errors.Join(err, failed)) // the next start continues
	}
	return takeover.Remove(c.Dir)
}

// mayTakeOver reports whether a decision is to be carried out: it was made a moment ago, and was not carried out yet.
func (c *Config) mayTakeOver(order *takeover.Order) bool {
	former, err := membership.ReadFormer(c.Dir, c.Version)
	switch {
	case err != nil:
		c.Log.Error("cannot take over", "error", err)
		return false
	case former.Incarnation != order.Incarnation:
		return false
	case !order.Valid(c.Dir):
		c.Log.Warn("the decision to take over is too old, and is dropped")
		return false
	}
	return true
}
