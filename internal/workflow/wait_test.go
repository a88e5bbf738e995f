package workflow_test

import (
	"strings"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/workflow"
)

// Each report begins another wait. Between two attempts the wait covers the backoff, and not the timeout of an attempt.
func TestWaitCoversBackoff(t *testing.T) {
	b := start(t, workflow.Machine{AgentUp: true})
	wipe := &b.w.Spec.Actions[0]
	wipe.Backoff, wipe.Retries = trivet.Duration(5*time.Minute), 2
	b.grant()
	step := b.w.Status.Step("wipe")
	step.Timeout, step.MaxAttempts = trivet.Duration(time.Minute), 3
	var last workflow.Wait
	for _, tc := range []struct {
		attempt int
		state   trivet.StepState
		limit   time.Duration
		note    string
	}{
		{1, trivet.StepRunning, 2 * time.Minute, ""},
		{1, trivet.StepFailed, 6 * time.Minute, "waits 5m0s before attempt 2"},
		{2, trivet.StepRunning, 2 * time.Minute, ""},
		{2, trivet.StepFailed, 11 * time.Minute, "waits 10m0s before attempt 3"},
		{3, trivet.StepRunning, 2 * time.Minute, ""},
	} {
		b.must(b.report("wipe", tc.attempt, tc.state))
		wait, limit, ok := workflow.CurrentWait(b.w)
		if !ok || wait == last || limit != tc.limit || step.Note != tc.note {
			t.Errorf("attempt %d %s: %+v after %+v, limit %s, note %q; want %s, %q", tc.attempt, tc.state, wait, last,
				limit, step.Note, tc.limit, tc.note)
		}
		last = wait
	}
}

// An agent that does not begin the next attempt after the backoff is lost, and the cause says so.
func TestBackoffEnds(t *testing.T) {
	b := start(t, workflow.Machine{AgentUp: true})
	b.w.Spec.Actions[0].Backoff = trivet.Duration(5 * time.Minute)
	b.grant()
	b.must(b.report("wipe", 1, trivet.StepFailed))
	b.r.Expire(workflow.Machine{Power: true})
	if got := b.w.Status.Step("wipe").Cause; !strings.Contains(got, "did not begin attempt 2 of wipe within 5m0s") {
		t.Errorf("cause %q", got)
	}
}

// An agent that is lost before it has fetched its run is like one that is lost later.
func TestLostIdleAgent(t *testing.T) {
	for name, tc := range map[string]struct {
		m    workflow.Machine
		want workflow.Remedy
	}{
		"with power":    {workflow.Machine{AgentUp: true, Power: true}, workflow.Remedy{RaiseEpoch: true, PowerCycle: true}},
		"without power": {workflow.Machine{AgentUp: true}, workflow.Remedy{}},
	} {
		b := start(t, tc.m)
		b.grant()
		b.want("running ssssDR...")
		if epoch, ok := workflow.AwaitedAgent(b.w); !ok || epoch != b.epoch {
			t.Errorf("%s: the run awaits epoch %d, %t", name, epoch, ok)
		}
		if got := b.r.DeclareLost(tc.m, "silent for 45s"); got != tc.want {
			t.Errorf("%s: remedy %+v, want %+v", name, got, tc.want)
		}
		b.want("booting sR.......")
		if _, ok := workflow.AwaitedAgent(b.w); ok || b.w.Status.Resets != 1 {
			t.Errorf("%s: it awaits an agent: %t, %d resets", name, ok, b.w.Status.Resets)
		}
		b.r.ReachBootStep(trivet.StepKernel)
		if _, ok := workflow.AwaitedAgent(b.w); ok {
			t.Errorf("%s: a machine that boots is judged by its former agent", name)
		}
	}
}

// A machine whose power command waits for a BMC worker is not late.
func TestPowerQueued(t *testing.T) {
	bmc, held := &trivet.BMC{}, time.Unix(1, 0)
	for name, tc := range map[string]struct {
		bmc    *trivet.BMC
		intent *trivet.PowerIntent
		want   bool
	}{
		"no intent":                       {bmc, nil, false},
		"queued":                          {bmc, &trivet.PowerIntent{Want: "cycle"}, true},
		"taken over":                      {bmc, &trivet.PowerIntent{Want: "cycle", Head: "head0"}, true},
		"is being sent":                   {bmc, &trivet.PowerIntent{Want: "cycle", Head: "head0", Held: held}, false},
		"the BMC is gone from the record": {nil, &trivet.PowerIntent{Want: "cycle"}, false},
	} {
		m := &trivet.Machine{Spec: trivet.MachineSpec{BMC: tc.bmc}, Status: trivet.MachineStatus{Intent: tc.intent}}
		if got := workflow.PowerQueued(m); got != tc.want {
			t.Errorf("%s: queued is %t", name, got)
		}
	}
}

// An idle agent is heard at least twice within the silence for which it is declared lost.
func TestIdleWait(t *testing.T) {
	const s = trivet.Duration(time.Second)
	for _, tc := range []struct{ asked, timeout, want trivet.Duration }{
		{0, 45 * s, 0}, {10 * s, 45 * s, 10 * s}, {trivet.MaxWait, 45 * s, 22*s + s/2},
		{3600 * s, 3600 * s, trivet.MaxWait}, {trivet.MaxWait, 5 * s, 2*s + s/2},
	} {
		if got := workflow.IdleWait(tc.asked, tc.timeout); got != tc.want {
			t.Errorf("asked for %s, with a timeout of %s: %s, want %s", tc.asked, tc.timeout, got, tc.want)
		}
	}
}
