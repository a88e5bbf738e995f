package workflow

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/actionspec"
)

// releaseRun is a release that has just begun.
func releaseRun(mode trivet.ReleaseMode, m Machine) *Run {
	spec := &trivet.WorkflowSpec{Machine: "m1", Release: mode, Actions: ReleaseActions(mode, m.Power, nil)}
	r := &Run{Spec: spec, Status: &trivet.WorkflowStatus{}, MaxResets: 3}
	r.StartRelease(m)
	return r
}

// A release has these steps, by its mode and by what the machine has. The first one that is not skipped is running.
func TestStepsOfARelease(t *testing.T) {
	const boot, tests = "power-on dhcp boot-script kernel hello ", "test-memory test-disk test-network "
	for name, c := range map[string]struct {
		mode  trivet.ReleaseMode
		m     Machine
		want  string
		first string
	}{
		"wipe":                  {trivet.ReleaseWipe, Machine{Power: true}, boot + "wipe verify power-off", "power-on"},
		"wipe with an agent":    {trivet.ReleaseWipe, Machine{true, true}, boot + "wipe verify power-off", "hello"},
		"wipe by hand":          {trivet.ReleaseWipe, Machine{}, boot + "wipe verify poweroff", "dhcp"},
		"no wipe":               {trivet.ReleaseNoWipe, Machine{Power: true}, "power-off", "power-off"},
		"no wipe by hand":       {trivet.ReleaseNoWipe, Machine{}, boot + "poweroff", "dhcp"},
		"keep data":             {trivet.ReleaseKeepData, Machine{true, true}, "power-off", "power-off"},
		"check":                 {trivet.ReleaseCheck, Machine{Power: true}, boot + tests + "power-off", "power-on"},
		"check by hand":         {trivet.ReleaseCheckAll, Machine{}, boot + tests + "poweroff", "dhcp"},
		"keep data by the hand": {trivet.ReleaseKeepData, Machine{AgentUp: true}, boot + "poweroff", "hello"},
	} {
		r := releaseRun(c.mode, c.m)
		var steps []string
		for _, s := range r.Status.Steps {
			steps = append(steps, s.Name)
		}
		if got := strings.Join(steps, " "); got != c.want || r.Status.Current().Name != c.first {
			t.Errorf("%s: the steps are %s, from %s; want %s, from %s", name, got, r.Status.Current().Name, c.want,
				c.first)
		}
		stopping := c.first == trivet.StepPowerOff
		if got := r.Status.State == trivet.WorkflowStopping; got != stopping || WantsAgent(r.Status) == stopping {
			t.Errorf("%s: the run is %s", name, r.Status.State)
		}
	}
}

// Without a BMC a person has time to boot the machine; with one the boot has its ordinary deadline.
func TestTimesOfARelease(t *testing.T) {
	if s := releaseRun(trivet.ReleaseWipe, Machine{}).Status.Step(trivet.StepDHCP); s.Timeout.D() != byHandTimeout {
		t.Errorf("by hand: %s", s.Timeout)
	}
	want := *trivet.DefaultLimits[trivet.StepDHCP].Retries + 1
	s := releaseRun(trivet.ReleaseWipe, Machine{Power: true}).Status.Step(trivet.StepDHCP)
	if s.Timeout != trivet.DefaultLimits[trivet.StepDHCP].Timeout || s.MaxAttempts != want {
		t.Errorf("by its BMC: %+v", s)
	}
	for bytes, want := range map[int64]time.Duration{0: time.Hour, 1e12: 6*time.Hour + 33*time.Minute,
		1e15: maxWipeTimeout} {
		inv := &trivet.Inventory{Disks: []trivet.Disk{{Bytes: 1e9}, {Bytes: bytes}}}
		got := ReleaseActions(trivet.ReleaseWipe, true, inv)[0].Timeout.D()
		if got != want {
			t.Errorf("a disk of %d bytes may take %s, want %s", bytes, got, want)
		}
	}
}

// A test has the time that the machine's memory needs, or its largest disk, where all of it is tested.
func TestTimesOfACheck(t *testing.T) {
	inv := &trivet.Inventory{MemoryMB: 512 << 10, Disks: []trivet.Disk{{Bytes: 1e9}, {Bytes: 9e12}}}
	for _, c := range []struct {
		mode trivet.ReleaseMode
		inv  *trivet.Inventory
		want string
	}{
		{trivet.ReleaseCheck, nil, "test-memory 2h0m0s test-disk 2h0m0s"},
		{trivet.ReleaseCheck, inv, "test-memory 3h50m0s test-disk 2h0m0s"},
		{trivet.ReleaseCheckAll, inv, "test-memory 3h50m0s test-disk 202h0m0s"},
	} {
		actions := ReleaseActions(c.mode, true, c.inv)
		got := fmt.Sprintf("%s %s %s %s", actions[0].Name, actions[0].Timeout, actions[1].Name, actions[1].Timeout)
		if got != c.want {
			t.Errorf("%s of %+v: %s, want %s", c.mode, c.inv, got, c.want)
		}
		for _, a := range actions {
			if err := actionspec.CheckRendered("action", a); err != nil {
				t.Errorf("%s: %v", c.mode, err)
			}
		}
	}
}

// The last step of a release is retried until its attempts are used up; then the machine is at fault.
func TestTheBMCDoesNotPowerOff(t *testing.T) {
	r := releaseRun(trivet.ReleaseNoWipe, Machine{Power: true})
	step := r.Status.Current()
	w := &trivet.Workflow{Spec: *r.Spec, Status: *r.Status}
	if _, limit, ok := CurrentWait(w); !ok || limit != step.Timeout.D() {
		t.Errorf("the wait is %s, want %s", limit, step.Timeout)
	}
	for attempt := 1; attempt < step.MaxAttempts; attempt++ {
		if remedy := r.Expire(Machine{Power: true}); remedy != (Remedy{PowerOff: true}) {
			t.Fatalf("attempt %d: the remedy is %+v", attempt, remedy)
		}
	}
	if remedy := r.Expire(Machine{Power: true}); remedy != (Remedy{RaiseEpoch: true}) {
		t.Errorf("at the end the remedy is %+v", remedy)
	}
	if f := r.Status.Failure; f == nil || f.Type != trivet.FaultMachine || f.Step != trivet.StepPowerOff {
		t.Errorf("the failure is %+v", f)
	}
	if r.Stopped("late") {
		t.Error("a release that failed succeeds later")
	}
}

// Whatever happens to a release: it ends; it succeeds only when the disks are wiped and verified, where they must be,
// and when the machine is off or runs an agent; and its agent gets no action that the mode does not have.
func TestEveryReleaseEnds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		mode := rapid.SampledFrom(trivet.ReleaseModes).Draw(t, "mode")
		m := Machine{Power: rapid.Bool().Draw(t, "BMC")}
		r := releaseRun(mode, m)
		stopped, epoch := false, int64(0)
		for range 40 {
			if r.Status.State.Ended() {
				break
			}
			switch what := rapid.SampledFrom([]string{"boot", "off", "report", "fail", "expire"}).Draw(t, "event"); what {
			case "boot":
				if epoch++; !r.Grant(epoch) {
					stopped = r.Stopped("an agent is up")
				}
			case "off":
				stopped = r.Stopped("it is off")
			case "report", "fail":
				reportNext(r, what == "fail")
			case "expire":
				r.Expire(m)
			}
		}
		for range 100 { // nothing happens any more
			if r.Status.State.Ended() {
				break
			}
			r.Expire(m)
		}
		switch s := r.Status; {
		case !s.State.Ended():
			t.Fatalf("the run does not end: %s", stepsText(r))
		case s.State == trivet.WorkflowFailed && s.Failure == nil:
			t.Fatal("it failed without a cause")
		case s.State == trivet.WorkflowSucceeded:
			mustBeDone(t, r, mode, m.Power, stopped)
		}
	})
}

// reportNext reports the next action as the agent that holds the run does.
func reportNext(r *Run, fail bool) {
	next := r.nextAction()
	if r.Status.State != trivet.WorkflowRunning || next == nil {
		return
	}
	report := trivet.Report{Seq: r.Status.Acked + 1, Action: next.Name, Attempt: next.Failures + 1,
		State: trivet.StepDone}
	if fail {
		report.State, report.Fault, report.Cause = trivet.StepFailed, trivet.FaultMachine, "it fails"
	}
	if err := r.Apply([]trivet.Report{report}, 1); err != nil {
		panic(err)
	}
}

func mustBeDone(t *rapid.T, r *Run, mode trivet.ReleaseMode, power, stopped bool) {
	for _, name := range []string{ReleaseWipeAction, ReleaseVerifyAction} {
		s := r.Status.Step(name)
		if (mode == trivet.ReleaseWipe) != (s != nil) || s != nil && s.State != trivet.StepDone {
			t.Fatalf("a release by %s succeeded with %s", mode, stepsText(r))
		}
	}
	if power && !stopped {
		t.Fatalf("the machine may run: %s", stepsText(r))
	}
	if !power && r.Status.Step(releaseOffAction).State != trivet.StepDone {
		t.Fatalf("the agent did not power the machine off: %s", stepsText(r))
	}
}

func stepsText(r *Run) string {
	var parts []string
	for _, s := range r.Status.Steps {
		parts = append(parts, fmt.Sprintf("%s=%s", s.Name, s.State))
	}
	return string(r.Status.State) + ": " + strings.Join(parts, " ")
}

// A machine that is released is not started from its disk, and its BMC is asked for what the run waits for.
func TestPowerOfARelease(t *testing.T) {
	wiping := &trivet.Workflow{Spec: trivet.WorkflowSpec{Release: trivet.ReleaseWipe}}
	m := &trivet.MachineStatus{State: trivet.MachineReleasing}
	for _, c := range []struct {
		state trivet.WorkflowState
		step  string
		want  string
	}{
		{trivet.WorkflowBooting, trivet.StepPowerOn, "cycle"}, {trivet.WorkflowBooting, trivet.StepHello, ""},
		{trivet.WorkflowRunning, ReleaseWipeAction, ""}, {trivet.WorkflowStopping, trivet.StepPowerOff, "off"},
		{trivet.WorkflowFailed, "", "off"},
	} {
		wiping.Status = trivet.WorkflowStatus{State: c.state,
			Steps: []trivet.Step{{Name: c.step, State: trivet.StepRunning}}}
		if got := WantedPower(m, wiping); got != c.want {
			t.Errorf("%s of a run that is %s: %q, want %q", c.step, c.state, got, c.want)
		}
		if got := BootDevice(wiping); got != "network" {
			t.Errorf("a run that is %s boots from %s", c.state, got)
		}
	}
}

func TestReleaseNames(t *testing.T) {
	long := strings.Repeat("a", trivet.MaxName-10) + "-.bbbbbbbb"
	for machine, want := range map[string]string{"m1": "release-m1-7", long: ""} {
		name := ReleaseName(trivet.ReleaseWipe, machine, 7)
		if err := trivet.ValidateName(name); err != nil || want != "" && name != want {
			t.Errorf("%s: %q, %v", machine, name, err)
		}
	}
}
