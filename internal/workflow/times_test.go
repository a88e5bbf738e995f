package workflow_test

import (
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/workflow"
)

// The times of a step are those of its current or last attempt: what an agent that was lost used before is not added.
func TestTimesOfSteps(t *testing.T) {
	b := start(t, workflow.Machine{Power: true})
	step := func(name string) *trivet.Step { return b.w.Status.Step(name) }
	pass := func() time.Time {
		b.r.Now = b.r.Now.Add(time.Minute)
		return b.r.Now
	}
	expect := func(name string, started time.Time, ended bool) {
		t.Helper()
		if s := step(name); !s.Started.Equal(started) || s.Ended.IsZero() == ended {
			t.Errorf("%s, %s: from %s to %s, want from %s", name, s.State, s.Started, s.Ended, started)
		}
	}
	b.r.PowerSet()
	b.r.ReachBootStep(trivet.StepKernel)
	pass()
	b.grant()
	begun := pass()
	b.must(b.report("wipe", 1, trivet.StepRunning))
	expect("wipe", begun, false)
	lost := pass()
	b.r.DeclareLost(workflow.Machine{Power: true}, "silent for 45s")
	expect(trivet.StepDHCP, lost, false)
	fetched := pass()
	b.r.ReachBootStep(trivet.StepKernel)
	expect(trivet.StepScript, fetched, true) // not since it was reached for the lost agent
	pass()
	b.grant()
	again := pass()
	b.must(b.report("wipe", 1, trivet.StepRunning))
	expect("wipe", again, false)
	failed := pass()
	b.must(b.report("wipe", 1, trivet.StepFailed))
	expect("wipe", failed, false)
	begun = pass()
	b.must(b.report("wipe", 2, trivet.StepRunning))
	pass()
	b.must(b.report("wipe", 2, trivet.StepDone))
	expect("wipe", begun, true)
}

// The step in which a run was cancelled is neither done nor skipped.
func TestCancelledStep(t *testing.T) {
	b := start(t, workflow.Machine{AgentUp: true})
	b.grant()
	b.must(b.report("wipe", 1, trivet.StepRunning))
	b.r.Cancel("the provision was deleted")
	if s := b.w.Status.Step("wipe"); s.State != trivet.StepCancelled || b.w.Status.Current() != nil {
		t.Errorf("%+v", s)
	}
}
