package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/cluster"
	"github.com/trivet-project/trivet/internal/hostnet"
	"github.com/trivet-project/trivet/internal/limit"
	"github.com/trivet-project/trivet/internal/membership"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/wait"
)

// run serves until ctx ends or a part fails.
func (s *Server) run(ctx context.Context) error {
	stop := ctx
	ctx, cancel := s.untilDrained(ctx)
	defer cancel()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.awaitFailure(ctx) })
	g.Go(func() error { s.local.RotateCertificate(ctx); return nil })
	g.Go(func() error { s.router.links.Run(ctx); return nil })
	g.Go(func() error { s.router.exits.Run(ctx); return nil })
	log := s.cfg.Log.With("head", s.local.Name(), "cluster", s.local.Root().Cluster())
	if s.local.Witness() {
		g.Go(func() error {
			err := s.local.RunWitness(ctx, s.ownProgram(s.local.OpenProgram), s.ready)
			if errors.Is(err, ErrRestart) {
				s.requestRestart()
				return nil
			}
			return err
		})
		log.Info("ready", "role", "witness", "peer", s.APIURLs()[0])
		return g.Wait()
	}
	s.runHead(ctx, g)
	if s.vip != nil {
		g.Go(func() error { runVIP(ctx, stop, s.vip, s.store); return nil })
	}
	log.Info("ready", "api", s.APIURLs(), "boot", s.BootURLs())
	return g.Wait()
}

// awaitFailure returns the error of a part that fails before ctx ends.
func (s *Server) awaitFailure(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-s.local.Fenced():
		return s.local.ErrFenced()
	case err := <-s.apiDone:
		return err
	case err := <-s.member.Failed():
		if errors.Is(err, cluster.ErrRemoved) {
			return s.local.ErrRemoved()
		}
		err = fmt.Errorf("the store's member failed: %w", err)
		if errors.Is(err, syscall.ENOSPC) {
			s.serveReads(ctx, err)
		}
		return err
	}
}

// restartInterval is how often a head whose member has failed checks whether another start would succeed.
const restartInterval = time.Second

// serveReads serves reads and boots from the copy of the records while this head's member cannot run for lack of
// space. It returns when there is space, so that the head is started again.
func (s *Server) serveReads(ctx context.Context, cause error) {
	s.cfg.Log.Error("the store's member failed; this head serves reads and boots, and ends when there is space again",
		"error", cause)
	for wait.Sleep(ctx, restartInterval) == nil && cluster.CheckStartSpace(s.cfg.Dir) != nil {
	}
}

// runHead runs what only a full head has.
func (s *Server) runHead(ctx context.Context, g *errgroup.Group) {
	bootServer := s.netboot.HTTPServer()
	g.Go(func() error {
		return served(bootServer.Serve(s.netboot.Listen(limit.Listen(s.listeners.boot, s.limits.boot))))
	})
	g.Go(func() error { return s.listeners.serveUDP(ctx) })
	g.Go(func() error { return s.api.Run(ctx) })
	g.Go(func() error { return s.netboot.Run(ctx) })
	g.Go(func() error { s.netboot.SearchServers(ctx, s.cfg.DHCPInterfaces); return nil })
	g.Go(func() error { return s.leases.Run(ctx) })
	g.Go(func() error { return s.runControllers(ctx) })
	if s.cfg.Audit != "" {
		g.Go(func() error { return s.exportAudit(ctx) })
	}
	g.Go(func() error { s.exchange.Run(ctx); return nil })
	g.Go(func() error { s.registration.Run(ctx); return nil })
	g.Go(func() error { s.keeper.Run(ctx); return nil })
	g.Go(func() error { s.blobs.Run(ctx); return nil })
	g.Go(func() error { s.health.Run(ctx, s.metrics); return nil })
	g.Go(func() error { s.takeover.Run(ctx); return nil })
	g.Go(func() error {
		(&membership.Fencer{Records: s.records, Client: s.local.Client()}).Run(ctx)
		return nil
	})
	g.Go(func() error {
		if err := s.monitor.Run(ctx); err != nil {
			return s.local.ErrRemoved()
		}
		return nil
	})
	g.Go(func() error {
		<-ctx.Done()
		s.api.Drain()
		s.consoles.Close()
		timeout, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
		defer cancel()
		return drain(timeout, s.router, bootServer)
	})
}

// runVIP acquires the shared address when it is free, and holds it until ctx ends or stop does: another head holds it
// while this one still serves.
func runVIP(ctx, stop context.Context, vip *hostnet.VIP, leases *store.Store) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(stop, cancel)()
	vip.WithLease = func(ctx context.Context, name string, ttl time.Duration,
		do func(context.Context, func() bool) error) error {
		return leases.WithLease(ctx, name, ttl,
			func(ctx context.Context, l *store.Lease) error { return do(ctx, l.Held) })
	}
	vip.Run(ctx)
}

// untilDrained returns a context that ends a while after ctx. The head still serves meanwhile, and is not ready, so
// that load balancers stop sending requests to it.
func (s *Server) untilDrained(ctx context.Context) (context.Context, context.CancelFunc) {
	serving, cancel := context.WithCancel(context.WithoutCancel(ctx))
	undo := context.AfterFunc(ctx, func() {
		s.stopping.Store(true)
		s.router.closing.Store(true)
		drain := s.cfg.Drain
		if errors.Is(context.Cause(ctx), errTakeOver) {
			drain = 0
		}
		if drain > 0 {
			s.cfg.Log.Info("stopping: not ready from now on, and serving for a while", "drain", drain)
		} else {
			s.cfg.Log.Info("stopping", "restart", errors.Is(context.Cause(ctx), ErrRestart))
		}
		select {
		case <-time.After(drain):
		case <-serving.Done():
		}
		cancel()
	})
	return serving, func() { undo(); cancel() }
}

// drain lets the requests of the API and the downloads of machines end side by side, so that neither shortens the
// other's time. It aborts downloads that outlast ctx. Both servers refuse new requests.
func drain(ctx context.Context, api *router, bootServer *http.Server) error {
	var requests sync.WaitGroup
	defer requests.Wait()
	requests.Go(func() { api.drain(ctx) })
	return shutdown(ctx, bootServer)
}

// close releases what New has opened.
func (s *Server) close() {
	if s.blobs != nil {
		s.blobs.Close()
	}
	if s.vip != nil {
		s.vip.Close()
	}
	if s.blobStore != nil {
		_ = s.blobStore.Close()
	}
	if s.logs != nil {
		_ = s.logs.Close()
	}
	if s.store != nil {
		s.store.Close()
	}
	if s.member != nil {
		s.member.Close()
	}
	if s.apiHTTP != nil {
		_ = s.apiHTTP.Close()
	}
	if s.local != nil {
		s.local.Client().Close()
	}
	s.listeners.close()
}

func served(err error) error {
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// shutdown lets requests end, and aborts those that do not.
func shutdown(ctx context.Context, srv *http.Server) error {
	if err := srv.Shutdown(ctx); err != nil {
		return srv.Close()
	}
	return nil
}

// requestRestart makes Run end with ErrRestart, as at a signal to stop.
func (s *Server) requestRestart() { s.restart(ErrRestart) }

// isStable reports whether another head has been healthy for a while since its last start.
func (s *Server) isStable(h *trivet.Head) bool { return s.isWell(h, membership.StableTime) }
