package membership

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/peer"
)

// View is the control plane as this head sees it.
type View struct {
	Local    *Local
	Records  *Records
	Statuses func() map[string]peer.Status // of the other heads, by name
}

// States of heads that a view has besides those of records.
const (
	stateLeader   = "leader"
	stateDown     = "down"
	stateRemoving = "removing"
)

// Cluster returns all heads with their state.
func (v *View) Cluster() trivet.Cluster {
	now, self, statuses := time.Now(), v.Local.Info(), v.Statuses()
	c := trivet.Cluster{ID: v.Local.Root().Cluster(), Head: self.Head, Quorum: self.Leader != "",
		Revision: self.Revision}
	for h := range v.Records.Heads.AllShared() {
		view := newHeadView(h)
		leads := self.Leader != "" && h.Status.Member == self.Leader
		if h.Name == self.Head {
			view.LastHeard = new(trivet.Duration)
			view.Problem = cmp.Or(refusedProblem(self.Refused), view.Problem)
		} else if status, ok := statuses[h.Name]; ok {
			addStatus(&view, status, now)
		}
		switch {
		case h.Status.State == trivet.HeadRemoved:
			view.LastHeard, view.Problem = nil, ""
		case h.Spec.Remove:
			view.State = stateRemoving
		case leads:
			view.State = stateLeader
		}
		c.Heads = append(c.Heads, view)
	}
	return c
}

// newHeadView returns what a head's record contains.
func newHeadView(h *trivet.Head) trivet.HeadView {
	return trivet.HeadView{Name: h.Name, Role: h.Spec.RoleOrDefault(), State: string(h.Status.State),
		Version: h.Status.Version, API: h.Status.API, Peer: h.Status.Peer, Problem: pendingReason(h)}
}

// pendingReason returns what a head waits for. A head that is joining and catches up has no problem.
func pendingReason(h *trivet.Head) string {
	for _, kind := range []error{trivet.ErrConflict, trivet.ErrUnavailable} {
		reason, ok := strings.CutPrefix(h.Status.Reason, kind.Error()+": ")
		if ok && h.Status.State == trivet.HeadJoining && !h.Spec.Remove {
			return "joining: " + reason
		}
	}
	return h.Status.Reason
}

// refusedProblem is the problem of a head that refuses values of the store.
func refusedProblem(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("refuses %d values of the store, which do not authenticate: see its log", n)
}

// addStatus adds the status of another head.
func addStatus(v *trivet.HeadView, s peer.Status, now time.Time) {
	if !s.LastHeard.IsZero() {
		age := trivet.Duration(now.Sub(s.LastHeard).Round(time.Second))
		v.LastHeard, v.Version = &age, s.Version
	}
	v.Problem = cmp.Or(refusedProblem(s.Refused), v.Problem)
	switch {
	case s.Err != nil:
		v.Problem = "does not respond: " + s.Err.Error()
		if v.State == string(trivet.HeadMember) {
			v.State = stateDown
		}
	case s.Skew > 0:
		v.Problem = "its clock is " + s.Skew.Round(time.Second).String() + " ahead; synchronize it by NTP"
	case s.Skew < 0:
		v.Problem = "its clock is " + (-s.Skew).Round(time.Second).String() + " behind; synchronize it by NTP"
	}
}
