package server

import (
	"context"

	"github.com/trivet-project/trivet/internal/controller"
	"github.com/trivet-project/trivet/internal/controller/blobs"
	"github.com/trivet-project/trivet/internal/controller/collect"
	"github.com/trivet-project/trivet/internal/controller/deadline"
	headcontroller "github.com/trivet-project/trivet/internal/controller/heads"
	"github.com/trivet-project/trivet/internal/controller/power"
	"github.com/trivet-project/trivet/internal/controller/provision"
	"github.com/trivet-project/trivet/internal/reconcile"
	"github.com/trivet-project/trivet/internal/state"
)

// runControllers runs the controllers of a full head until ctx ends. Each gets the tables within its declaration.
func (s *Server) runControllers(ctx context.Context) error {
	ranking := reconcile.Ranking{
		Self:   s.data.Name,
		Others: func() map[string]string { return s.fleet.PeerURLs(s.data.Name) },
		Live:   s.circle.Live,
	}
	within := func(d reconcile.Declaration) *state.Tables { return s.fleet.Tables.Within(d.Scope()) }
	return reconcile.Run(ctx, reconcile.Config{Store: s.store, Rank: ranking.Rank, Log: s.cfg.Log},
		provision.New(s.fleet.Within(provision.Declaration.Scope()), within(provision.Declaration)),
		deadline.New(deadline.Config{
			Fleet: s.fleet.Within(deadline.Declaration.Scope()), Presence: s.presence, Tables: within(deadline.Declaration),
			Rank: ranking.Rank, Quorum: s.member.HasLeader,
		}),
		power.New(power.Config{
			Fleet: s.fleet.Within(power.Declaration.Scope()), Tables: within(power.Declaration), Head: s.data.Name, Unseal: s.unseal,
		}),
		collect.New(within(collect.Declaration), s.logs),
		blobs.New(s.copies, within(blobs.Declaration)),
		headcontroller.New(controller.NewHeads(s.fleet, s.member, s.circle.Sights), within(headcontroller.Declaration)),
	)
}
