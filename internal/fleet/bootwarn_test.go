package fleet_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
)

// Only the seed that is on the disk ends the run: a machine that lost its agent before the seed was written again has
// an older one, and so has one that an earlier run installed.
func TestPhoneHomeOfAnotherEpoch(t *testing.T) {
	r := newRack(t)
	r.provision("p")
	r.must(r.hello("k1", 0))
	r.must(r.hello("k2", 1)) // the machine booted again before the seed was acknowledged
	done := []trivet.Report{{Seq: 1, Action: "work", Attempt: 1, State: trivet.StepDone}}
	r.must(r.report(2, "k2", done...))
	r.must(r.hello("k3", 2)) // and after it
	r.must(r.report(3, "k3", trivet.Report{Seq: 1, Action: "reboot", Attempt: 1, State: trivet.StepDone}))
	for _, epoch := range []int64{1, 3} {
		if err := r.phoneHome(epoch); !errors.Is(err, trivet.ErrFenced) {
			t.Errorf("a phone-home of epoch %d: %v, want fenced", epoch, err)
		}
	}
	other := auth.BootToken{Machine: "m1", Epoch: 2, Run: "OTHER"}
	if err := r.PhoneHome(t.Context(), other, nil); !errors.Is(err, trivet.ErrFenced) {
		t.Errorf("a phone-home of another run: %v, want fenced", err)
	}
	if m := r.machine(); m.Status.State != trivet.MachineProvisioning {
		t.Errorf("the machine: %+v", m.Status)
	}
	r.must(r.phoneHome(2))
}

// While the agent is heard, the machine was not reset: neither boot scripts nor hellos end its run, use up its
// resets or restart it, and both are reported once.
func TestAnotherHostBootsAsAMachineAtWork(t *testing.T) {
	r := newRack(t)
	silence := time.Duration(0)
	r.AgentSilence = func(string, int64) time.Duration { return silence }
	r.provision("p")
	r.must(r.hello("k1", 0))
	for range 5 {
		r.must(r.ReachBootStep(t.Context(), "m1", trivet.StepScript, 1))
		if err := r.hello("k2", 1); !errors.Is(err, trivet.ErrUnavailable) {
			t.Fatalf("a hello beside an agent at work: %v, want unavailable: the machine may have been reset", err)
		}
	}
	m, err := r.Workflows.Get("default/p-1")
	r.must(err)
	if m.Status.State != trivet.WorkflowRunning || m.Status.Resets != 0 || m.Status.Epoch != 1 {
		t.Errorf("the run: %+v", m.Status)
	}
	if got, want := r.reasons(), "Claimed Granted UnexpectedBoot HelloRefused"; got != want {
		t.Errorf("events %s, want %s", got, want)
	}
	silence = time.Minute
	r.must(r.ReachBootStep(t.Context(), "m1", trivet.StepScript, 1))
	r.must(r.hello("k2", 1))
	if got := r.reasons(); !strings.HasSuffix(got, "AgentLost Granted") {
		t.Errorf("events %s: a silent agent's machine was reset", got)
	}
}

// The machine whose boot script another host used is refused, and that is reported.
func TestSecondHelloInOneBoot(t *testing.T) {
	r := newRack(t)
	r.provision("p")
	r.must(r.hello("thief", 0))
	for range 3 {
		if err := r.hello("k1", 0); !errors.Is(err, trivet.ErrFenced) {
			t.Fatalf("the second hello: %v, want fenced", err)
		}
	}
	if got, want := r.reasons(), "Claimed Granted HelloRefused"; got != want {
		t.Errorf("events %s, want %s", got, want)
	}
}

// A machine that was reset and boots faster than its agent counts as silent is believed at its next step.
func TestResetIsBelievedAtTheNextStep(t *testing.T) {
	r := newRack(t)
	silence := 20 * time.Second
	r.AgentSilence = func(string, int64) time.Duration { return silence }
	r.provision("p")
	r.must(r.hello("k1", 0))
	r.must(r.ReachBootStep(t.Context(), "m1", trivet.StepScript, 1))
	silence = 30 * time.Second
	r.must(r.ReachBootStep(t.Context(), "m1", trivet.StepKernel, 1))
	w, err := r.Workflows.Get("default/p-1")
	r.must(err)
	if step := w.Status.Current(); w.Status.State != trivet.WorkflowBooting || step.Name != trivet.StepHello {
		t.Errorf("the run: %+v", w.Status)
	}
	r.must(r.hello("k2", 1))
}
