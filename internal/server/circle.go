package server

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/heads"
)

// self is who this head is, as it tells others.
func (s *Server) self() heads.Greeting {
	g := heads.Greeting{Head: s.data.Name, Version: s.cfg.Version, Protocol: heads.Protocol, Time: time.Now(), Started: s.begun}
	if s.member == nil { // it proves its membership first
		g.Member = s.data.Member
		return g
	}
	g.Member, g.Revision, g.Peers = heads.MemberID(s.member.ID()), s.member.Revision(), s.member.Peers()
	if id := s.member.Leader(); id != 0 {
		g.Leader = heads.MemberID(id)
	}
	return g
}

// remember keeps in the data folder what the next start needs to know of the cluster.
func (s *Server) remember() error {
	s.dataMu.Lock()
	defer s.dataMu.Unlock()
	if !s.member.HasLeader() {
		return nil
	}
	s.data.Member, s.data.Peers = heads.MemberID(s.member.ID()), s.member.Peers()
	return s.keepData()
}

// keepUp remembers the members and the heads' addresses as they change, until ctx ends.
func (s *Server) keepUp(ctx context.Context) {
	tick := time.NewTicker(3 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		err := s.remember()
		if fileExists(AdminFile(s.cfg.Dir)) {
			err = errors.Join(err, s.updateAdminFile())
		}
		if err != nil {
			s.cfg.Log.Warn("what is known of the heads is not kept", "error", err)
		}
	}
}

// endpoints are the APIs of all heads, this one's first.
func (s *Server) endpoints() []string {
	urls := slices.Clone(s.APIURLs())
	for h := range s.fleet.Heads.AllShared() {
		if h.Name != s.data.Name && h.Serves() {
			urls = append(urls, h.Status.API...)
		}
	}
	return urls
}

// updateAdminFile keeps the addresses in the file right.
func (s *Server) updateAdminFile() error {
	file, err := client.ReadFile(AdminFile(s.cfg.Dir))
	if err != nil {
		return err
	}
	c, err := file.Pick("")
	if err != nil || slices.Equal(c.Endpoints, s.endpoints()) {
		return err
	}
	return s.writeAdminFile(c.Token)
}

// cluster is the control plane as this head sees it.
func (s *Server) cluster() trivet.Cluster {
	now, self, sights := time.Now(), s.self(), s.circle.Sights()
	c := trivet.Cluster{ID: s.root.Cluster(), Head: self.Head, Quorum: self.Leader != "", Revision: self.Revision}
	for h := range s.fleet.Heads.AllShared() {
		v := trivet.HeadView{Name: h.Name, Role: h.Spec.Role, State: string(h.Status.State), Version: h.Status.Version, API: h.Status.API,
			Peer: h.Status.Peer, Problem: awaited(h)}
		if v.Role == "" {
			v.Role = trivet.RoleVoter
		}
		leads := self.Leader != "" && h.Status.Member == self.Leader
		if h.Name == self.Head {
			v.LastHeard = new(trivet.Duration)
		} else if sight, ok := sights[h.Name]; ok {
			look(&v, sight, now)
		}
		switch {
		case h.Status.State == trivet.HeadRemoved:
			v.LastHeard, v.Problem = nil, ""
		case h.Spec.Remove:
			v.State = "removing"
		case leads:
			v.State = "leader"
		}
		c.Heads = append(c.Heads, v)
	}
	return c
}

// awaited is what a head waits for. That one catches up which joins is no problem.
func awaited(h *trivet.Head) string {
	for _, kind := range []error{trivet.ErrConflict, trivet.ErrUnavailable} {
		if rest, ok := strings.CutPrefix(h.Status.Reason, kind.Error()+": "); ok && h.Status.State == trivet.HeadJoining && !h.Spec.Remove {
			return "joining: " + rest
		}
	}
	return h.Status.Reason
}

// look adds what was seen of another head.
func look(v *trivet.HeadView, s heads.Sight, now time.Time) {
	if !s.Heard.IsZero() {
		seen := trivet.Duration(now.Sub(s.Heard).Round(time.Second))
		v.LastHeard, v.Version = &seen, s.Version
	}
	switch {
	case s.Err != nil:
		v.Problem = "does not answer: " + s.Err.Error()
		if v.State == string(trivet.HeadMember) {
			v.State = "down"
		}
	case s.Skew > 0:
		v.Problem = "its clock is " + s.Skew.Round(time.Second).String() + " ahead; set it by NTP"
	case s.Skew < 0:
		v.Problem = "its clock is " + (-s.Skew).Round(time.Second).String() + " behind; set it by NTP"
	}
}
