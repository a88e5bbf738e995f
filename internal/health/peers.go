package health

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/cluster"
	"github.com/trivet-project/trivet/internal/peer"
)

// path is the endpoint by which heads report the facts of themselves.
const path = "status"

// factsTimeout bounds the request for another head's facts: it probes first.
const factsTimeout = 6 * time.Second

// Register adds the endpoint. A witness has no facts, and must not read those of heads.
func (s *Source) Register(p *peer.Server) {
	p.Register(peer.Endpoint{Path: path, Access: peer.FullMember,
		Handle: func(r *http.Request, _ auth.Peer, _ []byte) (any, error) { return s.Own(r.Context()) }})
}

// heads returns the facts of all heads, in the order of the view. All are asked at the same time.
func (s *Source) heads(ctx context.Context, view trivet.Cluster) []trivet.HeadFacts {
	statuses, peers := s.Statuses(), s.Member.Peers()
	var all []*trivet.HeadFacts
	var requests sync.WaitGroup
	for _, v := range view.Heads {
		if v.State == string(trivet.HeadRemoved) {
			continue
		}
		h := newHead(v, statuses[v.Name], peers)
		if rec, err := s.Tables.Heads.GetShared(v.Name); err == nil {
			h.Release = rec.Status.Release
		}
		all = append(all, h)
		requests.Go(func() {
			if v.Name == view.Head {
				s.addOwn(ctx, h)
			} else {
				s.ask(ctx, h, v)
			}
		})
	}
	requests.Wait()
	list := make([]trivet.HeadFacts, len(all))
	for i, h := range all {
		list[i] = *h
	}
	return list
}

// newHead returns what is known of a head without asking it.
func newHead(v trivet.HeadView, status peer.Status, peers []cluster.Peer) *trivet.HeadFacts {
	h := &trivet.HeadFacts{Name: v.Name, Role: v.Role, State: v.State, Version: v.Version, LastHeard: v.LastHeard,
		Problem: v.Problem, Lag: status.Lag, ClockAhead: trivet.SignedDuration(status.Skew)}
	for _, p := range peers {
		h.Voter = h.Voter || p.Name == v.Name && !p.Learner
	}
	return h
}

func (s *Source) addOwn(ctx context.Context, h *trivet.HeadFacts) {
	if o, err := s.Own(ctx); err == nil {
		h.Own = &o
	}
}

// ask asks a head for its facts. One that has none, as a witness or an older release, is pinged.
func (s *Source) ask(ctx context.Context, h *trivet.HeadFacts, v trivet.HeadView) {
	if v.Peer == "" { // it joins, and has no address yet
		return
	}
	var failed error
	if h.Role != trivet.RoleWitness {
		call, cancel := context.WithTimeout(ctx, factsTimeout)
		defer cancel()
		var o trivet.OwnFacts
		sent := time.Now()
		if failed = s.Client.Call(call, v.Peer, path, struct{}{}, &o); failed == nil {
			h.Own = &o
			responds(h, clockAhead(o.Time, sent, time.Now()))
			return
		}
	}
	sent := time.Now()
	info, err := s.Client.Ping(ctx, v.Peer)
	if err != nil {
		h.Down, h.Problem = true, err.Error()
		return
	}
	responds(h, clockAhead(info.Time, sent, time.Now()))
	if failed != nil {
		h.Problem = "it reports no facts: " + failed.Error()
	}
}

// clockAhead returns by how much a clock is ahead at least that was read between two times of this one. It does not
// take the time of a slow response for a difference.
func clockAhead(read, sent, received time.Time) time.Duration {
	switch {
	case read.After(received):
		return read.Sub(received)
	case read.Before(sent):
		return read.Sub(sent)
	}
	return 0
}

// responds notes the clock of a head, unless pings know it better, and drops what the view says of a head that did not
// respond to its last ping.
func responds(h *trivet.HeadFacts, ahead time.Duration) {
	if h.ClockAhead == 0 {
		h.ClockAhead = trivet.SignedDuration(ahead)
	}
	if h.State == stateDown {
		h.State, h.Problem = string(trivet.HeadMember), ""
	}
}

// stateDown is the state of a head in a view that does not respond.
const stateDown = "down"
