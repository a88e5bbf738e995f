package lab

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/agent/action"
)

// secret is what the installed system has written to its disk.
const secret = "the data of the last user"

// installed installs a machine whose system then writes data, and returns it powered off.
func (s *site) installed(name string) *Machine {
	s.Helper()
	m := s.machine(name, "demo")
	off := s.power(m)
	s.until(name+"-1", func(w *trivet.Workflow) bool { return w.Status.State == trivet.WorkflowSucceeded })
	off()
	f, err := os.OpenFile(m.disk(), os.O_RDWR, 0)
	s.must(err)
	for _, off := range []int64{40 << 20, DiskBytes - 1<<16} {
		_, err := f.WriteAt([]byte(secret), off)
		s.must(err)
	}
	s.must(f.Close())
	return m
}

// release begins the release of a machine and returns the name of its run.
func (s *site) release(m *Machine) string {
	s.Helper()
	s.must(s.client.Release(s.Context(), m.Name, trivet.ReleaseRequest{Provision: m.Name}))
	rec := s.record(m)
	if rec.Status.State != trivet.MachineReleasing || rec.Status.Provision != "" {
		s.Errorf("after the request: %+v", rec.Status)
	}
	_, err := client.Of[trivet.Provision](s.client).Get(s.Context(), m.Name)
	if !errors.Is(err, trivet.ErrNotFound) {
		s.Errorf("its provision: %v", err)
	}
	return rec.Status.Workflow
}

func (s *site) record(m *Machine) *trivet.Machine {
	s.Helper()
	rec, err := client.Of[trivet.Machine](s.client).Get(s.Context(), m.Name)
	s.must(err)
	return rec
}

// mustBeReleased waits for the end of a release, and checks the machine, its disk and its events.
func (s *site) mustBeReleased(m *Machine, run string) *trivet.Workflow {
	s.Helper()
	w := s.until(run, func(w *trivet.Workflow) bool { return w.Status.State.Ended() })
	rec := s.record(m)
	if w.Status.State != trivet.WorkflowSucceeded || rec.Status.State != trivet.MachineAvailable ||
		rec.Status.Power != "off" {
		s.Fatalf("the run is %s (%+v), the machine %+v", w.Status.State, w.Status.Failure, rec.Status)
	}
	raw, err := os.ReadFile(m.disk())
	s.must(err)
	if len(bytes.Trim(raw, "\x00")) > 0 {
		s.Errorf("something is left on the disk; the secret: %v", bytes.Contains(raw, []byte(secret)))
	}
	events, _, err := client.Of[trivet.Event](s.client).List(s.Context(),
		client.ListOptions{Fields: "spec.subject=machine/" + m.Name + ",spec.subjectUID=" + rec.UID})
	s.must(err)
	for _, e := range events {
		if e.Spec.Reason == trivet.ReasonActionDone && e.Spec.Step == "wipe" && e.Spec.Workflow == run &&
			strings.Contains(e.Spec.Message, "discard: "+m.Name+".disk") {
			return w
		}
	}
	s.Errorf("no event says how the disk was wiped")
	return w
}

// A machine is installed and released: nothing is left on its disk, and it is available.
func TestReleaseOfAMachine(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	m := s.installed("m")
	run := s.release(m)
	defer s.power(m)()
	w := s.mustBeReleased(m, run)
	for _, step := range []string{"wipe", "verify", "poweroff"} {
		if st := w.Status.Step(step); st == nil || st.State != trivet.StepDone || st.Attempt != 1 {
			t.Errorf("%s: %+v", step, st)
		}
	}
}

// A machine in quarantine is checked, nothing is found, and it is available. Its disk is as it was.
func TestCheckOfAMachine(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	m := s.installed("m")
	s.must(s.client.Release(s.Context(), m.Name, trivet.ReleaseRequest{Mode: trivet.ReleaseNoWipe, Provision: m.Name}))
	off := s.power(m)
	s.until(s.record(m).Status.Workflow, func(w *trivet.Workflow) bool { return w.Status.State.Ended() })
	off()
	s.must(s.client.Quarantine(s.Context(), m.Name, "it was slow"))
	before, err := os.ReadFile(m.disk())
	s.must(err)
	s.must(s.client.Release(s.Context(), m.Name, trivet.ReleaseRequest{Mode: trivet.ReleaseCheckAll}))
	defer s.power(m)()
	w := s.until(s.record(m).Status.Workflow, func(w *trivet.Workflow) bool { return w.Status.State.Ended() })
	after, err := os.ReadFile(m.disk())
	s.must(err)
	rec := s.record(m)
	if w.Status.State != trivet.WorkflowSucceeded || rec.Status.State != trivet.MachineAvailable ||
		!bytes.Equal(before, after) {
		t.Errorf("the run: %+v, the machine: %+v; the disk is the same: %t", w.Status, rec.Status, bytes.Equal(before, after))
	}
}

// The agent dies while it wipes the disk. The machine boots again, and the release goes on.
func TestReleaseWhoseAgentDies(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	_, err := client.Of[trivet.Site](s.client).Modify(s.Context(), trivet.SiteName, func(site *trivet.Site) error {
		site.Spec.AgentTimeout = trivet.Duration(10 * time.Second) // how long the dead agent is believed to be at work
		return nil
	})
	s.must(err)
	m := s.installed("mm")
	wiping, dies := make(chan struct{}), atomic.Bool{}
	dies.Store(true)
	m.Wrap = func(next Doer) Doer {
		return func(ctx context.Context, at *action.Attempt) error {
			if at.Action.Use == "wipe" && dies.CompareAndSwap(true, false) {
				close(wiping)
				<-ctx.Done()
				return ctx.Err()
			}
			return next(ctx, at)
		}
	}
	run := s.release(m)
	off := s.power(m)
	<-wiping
	s.until(run, running("wipe"))
	off()
	defer s.power(m)()
	w := s.mustBeReleased(m, run)
	if w.Status.Resets != 1 {
		t.Errorf("the agent was lost %d times", w.Status.Resets)
	}
}

// A disk that cannot be wiped leaves the machine in quarantine, with the cause.
func TestReleaseThatFails(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	m := s.installed("mmm")
	m.Wrap = func(next Doer) Doer {
		return func(ctx context.Context, at *action.Attempt) error {
			if at.Action.Use == "wipe" {
				return &action.Failure{Fault: trivet.FaultMachine, Final: true, Err: errors.New("input/output error")}
			}
			return next(ctx, at)
		}
	}
	run := s.release(m)
	defer s.power(m)()
	w := s.until(run, func(w *trivet.Workflow) bool { return w.Status.State.Ended() })
	rec := s.record(m)
	if f := w.Status.Failure; f == nil || f.Step != "wipe" || f.Type != trivet.FaultMachine {
		t.Errorf("the failure: %+v", f)
	}
	if rec.Status.State != trivet.MachineQuarantined || rec.Status.Former != trivet.MachineReleasing ||
		!strings.Contains(rec.Status.Reason, "its release failed at wipe of "+run+": input/output error") ||
		rec.Status.Inventory == nil {
		t.Errorf("the machine: %+v", rec.Status)
	}
}
