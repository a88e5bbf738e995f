package workflow_test

import (
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/workflow"
)

// A step is late once for each attempt, and not while it waits for the next one. What is late goes on.
func TestLate(t *testing.T) {
	b := start(t, workflow.Machine{Power: true})
	late := trivet.Duration(2 * time.Minute)
	b.w.Spec.Times = []trivet.StepTime{{Step: trivet.StepPowerOn, Late: late, Runs: 120},
		{Step: trivet.StepHello, P95: late}, {Step: "wipe", Late: late}}
	expect := func(what string, want trivet.Duration) {
		t.Helper()
		if got := workflow.LateAfter(b.w); got != want.D() {
			t.Errorf("%s it is late after %s, want %s", what, got, want)
		}
	}
	expect("at power-on", late)
	b.r.ReportLate()
	expect("after it was reported", 0)
	e := b.r.Events[len(b.r.Events)-1]
	want := "attempt 1 of 3 takes longer than 2m0s, which 99.9% of 120 earlier ones on machines of this model took at " +
		"most; its deadline is after 2m0s"
	if e.Reason != trivet.ReasonStepLate || !e.Warning || e.Step != trivet.StepPowerOn || e.Message != want {
		t.Errorf("the event is %+v", e)
	}
	if s := b.w.Status.Current(); s.Name != trivet.StepPowerOn || s.State != trivet.StepRunning || s.Failures != 0 {
		t.Errorf("the late step is %+v", s)
	}
	b.r.Expire(workflow.Machine{Power: true})
	expect("in the next attempt", late)
	b.r.PowerSet()
	expect("at dhcp, of which nothing is known,", 0)
	b.r.ReachBootStep(trivet.StepKernel)
	expect("at hello, of which too little is known,", 0)
	b.grant()
	b.must(b.report("wipe", 1, trivet.StepRunning))
	expect("at an action", late)
	b.must(b.report("wipe", 1, trivet.StepFailed))
	expect("between two attempts", 0)
	b.must(b.report("wipe", 2, trivet.StepRunning))
	expect("in its next attempt", late)
	b.r.Cancel("enough")
	expect("after the end", 0)
}
