package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/blob"
	"github.com/trivet-project/trivet/internal/controller/platforms"
	"github.com/trivet-project/trivet/internal/controller/upgrade"
	"github.com/trivet-project/trivet/internal/invariant"
	"github.com/trivet-project/trivet/internal/program"
	"github.com/trivet-project/trivet/internal/reconcile"
)

// upgradeController returns the controller of the program of this head.
func (s *Server) upgradeController(ranking reconcile.Ranking) *upgrade.Controller {
	return upgrade.New(upgrade.Config{Head: s.local.Name(), Programs: s.ownProgram(s.openProgram),
		Tables: s.fleet.Tables.Within(upgrade.Declaration.Scope()), Rank: ranking.Rank, Leader: s.leaderName,
		Well: s.isWell, Broken: s.broken, Started: s.local.Started(), Restart: s.requestRestart,
		Log: s.cfg.Log.With("controller", "upgrade")})
}

// ownProgram is the program of this head. open returns the content of another one.
func (s *Server) ownProgram(open func(context.Context, trivet.BlobRef) (io.ReadCloser, error)) *program.Own {
	return &program.Own{Dir: s.cfg.Programs, Manual: s.cfg.NoUpgrades || s.cfg.Programs == nil, Open: open}
}

// openProgram returns the content of a program, which this head fetches as every other blob.
func (s *Server) openProgram(_ context.Context, ref trivet.BlobRef) (io.ReadCloser, error) {
	d, err := blob.ParseDigest(ref.Digest)
	if err != nil {
		return nil, err
	}
	f, _, err := s.blobStore.Get(d)
	return f, err
}

// platformBlobs implements [platforms.Blobs].
type platformBlobs struct{ *Server }

// Open fetches a blob where this head does not hold it. A damaged copy is fetched again: that is to be tried later.
func (s platformBlobs) Open(ctx context.Context, ref trivet.BlobRef) (platforms.Content, error) {
	d, err := blob.ParseDigest(ref.Digest)
	if err != nil {
		return nil, err
	}
	if err := s.blobs.Fetch(ctx, d); err != nil {
		return nil, err
	}
	if err := s.blobStore.Verify(ctx, d, nil); err != nil {
		return nil, fmt.Errorf("%w: %w", trivet.ErrUnavailable, &trivet.Error{Op: "verify", Name: ref.Digest,
			Hint: "trivet blob repair", Err: errors.New(err.Error())})
	}
	f, _, err := s.blobStore.Get(d)
	return f, err
}

func (s platformBlobs) Store(ctx context.Context, content io.Reader) (ref trivet.BlobRef, err error) {
	if ref, err = s.blobStore.Put(ctx, content, trivet.BlobRef{}); err == nil {
		err = s.blobs.Secure(ctx, ref)
	}
	return ref, err
}

// leaderName returns the name of the head of the store's leader; empty: none is known.
func (s *Server) leaderName() string {
	id := s.member.Leader()
	for _, p := range s.member.Peers() {
		if p.ID == id {
			return p.Name
		}
	}
	return ""
}

// isWell reports whether another head has been healthy for this long since its last start.
func (s *Server) isWell(h *trivet.Head, d time.Duration) bool {
	status, ok := s.monitor.Statuses()[h.Name]
	return ok && status.Err == nil && status.Leader != "" && !status.HealthySince.IsZero() &&
		status.Started.Equal(h.Status.Started) && time.Since(status.HealthySince) >= d
}

// broken returns the invariants of trivet status that do not hold.
func (s *Server) broken(ctx context.Context) (names []string, err error) {
	report, err := s.health.Report(ctx)
	for _, i := range report.Invariants {
		if invariant.Level(i.State) == invariant.Level(trivet.InvariantBroken) {
			names = append(names, i.Name)
		}
	}
	return names, err
}
