package server

import (
	"context"
	"fmt"
	"slices"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/bmc"
	"github.com/trivet-project/trivet/internal/membership"
	"github.com/trivet-project/trivet/internal/recovery"
	"github.com/trivet-project/trivet/internal/takeover"
)

// newTakeover returns what lets this head take over from the other one.
func (s *Server) newTakeover() *takeover.Keeper {
	return takeover.New(takeover.Config{
		Head:   s.local.Name(),
		Heads:  func() []*trivet.Head { return slices.Collect(s.fleet.Heads.AllShared()) },
		Quorum: s.member.HasLeader,
		Ping: func(ctx context.Context, h *trivet.Head) (bool, error) {
			info, err := s.local.Client().Ping(ctx, h.Status.Peer)
			return info.Leader != "", err
		},
		BMC:   s.openBMCOf,
		Reach: takeover.Echo,
		Begin: func(cause string) error {
			err := takeover.Write(s.cfg.Dir, s.local.Incarnation(), cause)
			if err == nil {
				s.requestRestart()
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
	return bmc.Open(ctx, cfg)
}

// takeOver carries out the decision of this head's last run to take over: it recovers the cluster from its own data,
// and then starts as its first head. A decision that is too old, or refused, is dropped. Where the recovery fails, this
// head starts as it is, and decides again.
func (c *Config) takeOver(ctx context.Context) error {
	order, err := takeover.Read(c.Dir)
	if err != nil || order == nil {
		return err
	}
	former, err := membership.ReadFormer(c.Dir, c.Version)
	if err == nil && former.Incarnation != order.Incarnation { // it is complete
		return takeover.Remove(c.Dir)
	}
	if !order.Valid() {
		c.Log.Warn("the decision to take over is too old; this head decides again")
		if ready, err := recovery.GiveUp(c.Dir); err != nil || !ready {
			return dropOrder(c.Dir, err)
		}
	}
	plan, err := recovery.FromData(ctx, c.Dir, recovery.Request{Dir: c.Dir, Version: c.Version, Cause: order.Cause,
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
	c.Log.Error("cannot take over", "error", err)
	ready, failed := recovery.GiveUp(c.Dir)
	if ready {
		return fmt.Errorf("take over: %w", err) // the next start continues
	}
	return dropOrder(c.Dir, failed)
}

// dropOrder removes the decision, unless there was an error before.
func dropOrder(dir string, err error) error {
	if err != nil {
		return err
	}
	return takeover.Remove(dir)
}
