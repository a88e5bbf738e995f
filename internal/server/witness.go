package server

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/cluster"
	"github.com/trivet-project/trivet/internal/heads"
)

// openWitness serves what a witness serves besides the store's members: greetings, and whether it lives.
func (s *Server) openWitness(context.Context) error {
	if len(s.cfg.DHCPInterfaces) > 0 || s.cfg.DHCPAddress != "" {
		s.cfg.Log.Warn("a witness serves no DHCP; --dhcp and --dhcp-listen are not used")
	}
	s.front.set(&s.front.heads, heads.New(heads.Config{Root: s.root, Members: s.member, Self: s.self, Log: s.cfg.Log}))
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if err := s.ready(r.Context()); err != nil {
			refuse(w, err)
			return
		}
		_, _ = w.Write([]byte("ready\n"))
	})
	s.front.set(&s.front.api, mux)
	return nil
}

// attendWitness does what a full head does in its records: it tells the others where it is reached, and remembers them. While it
// knows no leader it asks them whether it was removed, and ends where that is so: as a member they would not hear it any more.
func (s *Server) attendWitness(ctx context.Context) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		err := s.ready(ctx)
		if err == nil {
			err = errors.Join(s.member.SetURL(ctx, s.APIURLs()[0]), s.started(), s.remember())
		}
		if err != nil && ctx.Err() == nil {
			s.cfg.Log.Debug("the witness waits", "error", err)
			if !s.member.HasLeader() && s.toldOut(ctx) {
				return s.out()
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// toldOut says whether another head tells that this one was removed.
func (s *Server) toldOut(ctx context.Context) bool {
	return slices.ContainsFunc(s.others(), func(p cluster.Peer) bool {
		_, err := s.caller.Greet(ctx, p.URL)
		return errors.Is(err, trivet.ErrForbidden)
	})
}
