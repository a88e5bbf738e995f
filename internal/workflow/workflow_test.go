package workflow_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/workflow"
)

// install is a run of two actions and a reboot.
func install() *trivet.Workflow {
	return &trivet.Workflow{Meta: trivet.Meta{Project: "default", Name: "w"}, Spec: trivet.WorkflowSpec{Machine: "m1",
		Actions: []trivet.Action{
			{Name: "wipe", Use: "wipe", Retries: 1}, {Name: "image", Use: "image", Retries: 2},
			{Name: "reboot", Use: "reboot"},
		}}}
}

type bench struct {
	*testing.T
	w     *trivet.Workflow
	r     workflow.Run
	epoch int64
	seq   int64
}

func start(t *testing.T, m workflow.Machine) *bench {
	b := &bench{T: t, w: install()}
	b.r = workflow.Run{Spec: &b.w.Spec, Status: &b.w.Status, Now: time.Unix(1, 0), MaxResets: 3}
	b.r.Start(m)
	return b
}

func (b *bench) grant() {
	b.Helper()
	b.epoch, b.seq = b.epoch+1, 0
	if !b.r.Grant(b.epoch) {
		b.Fatalf("no grant in state %s", b.w.Status.State)
	}
}

func (b *bench) report(action string, try int, state trivet.StepState) error {
	b.seq++
	return b.r.Apply([]trivet.Report{{Seq: b.seq, Action: action, Attempt: try, State: state, Cause: "it broke"}}, 1)
}

func (b *bench) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// granted returns the run as its agent gets it.
func (b *bench) granted() *trivet.Run {
	b.Helper()
	run := workflow.GrantedRun(&trivet.Machine{Status: trivet.MachineStatus{Epoch: b.w.Status.Epoch}}, b.w)
	if run == nil {
		b.Fatalf("no run is granted in state %s", b.w.Status.State)
	}
	return run
}

// picture is the run on one line: state, then one letter for each step's state.
func (b *bench) picture() string {
	letters := map[trivet.StepState]string{"": ".", "running": "R", "done": "D", "failed": "F", "skipped": "s"}
	s := string(b.w.Status.State) + " "
	for _, step := range b.w.Status.Steps {
		s += letters[step.State]
	}
	return s
}

func (b *bench) want(picture string) {
	b.Helper()
	if got := b.picture(); got != picture {
		b.Errorf("got  %s\nwant %s", got, picture)
	}
}

func TestAnInstall(t *testing.T) {
	b := start(t, workflow.Machine{Power: true})
	b.want("booting R........")
	b.r.PowerSet()
	b.want("booting DR.......")
	for _, step := range []string{trivet.StepDHCP, trivet.StepDHCP, trivet.StepScript, trivet.StepDHCP,
		trivet.StepKernel} {
		b.r.ReachBootStep(step)
	}
	b.want("booting DDDDR....")
	b.grant()
	b.want("running DDDDDR...")
	b.must(b.report("wipe", 1, trivet.StepDone))
	b.must(b.report("image", 1, trivet.StepRunning))
	b.must(b.report("image", 1, trivet.StepFailed))
	b.want("running DDDDDDR..")
	b.must(b.report("image", 2, trivet.StepDone))
	b.must(b.report("reboot", 1, trivet.StepDone))
	b.want("starting DDDDDDDDR")
	if workflow.WantsAgent(&b.w.Status) {
		t.Error("a machine whose actions are done would netboot the installer")
	}
	b.r.PhoneHome(nil)
	b.want("succeeded DDDDDDDDD")
}

func TestReportsAreAppliedOnce(t *testing.T) {
	b := start(t, workflow.Machine{AgentUp: true})
	b.grant()
	batch := []trivet.Report{
		{Seq: 1, Action: "wipe", Attempt: 1, State: trivet.StepRunning},
		{Seq: 2, Action: "wipe", Attempt: 1, State: trivet.StepDone},
	}
	b.must(b.r.Apply(batch, len(batch)))
	happened := len(b.r.Events)
	b.must(b.r.Apply(batch, len(batch)))
	if len(b.r.Events) != happened || b.w.Status.Acked != 2 {
		t.Errorf("the second time changed something: %v, acked %d", b.r.Events[happened:], b.w.Status.Acked)
	}
	for name, bad := range map[string]trivet.Report{
		"a gap":             {Seq: 4, Action: "image", State: trivet.StepDone},
		"a done action":     {Seq: 3, Action: "wipe", State: trivet.StepDone},
		"out of order":      {Seq: 3, Action: "reboot", State: trivet.StepDone},
		"an unknown action": {Seq: 3, Action: "nope", State: trivet.StepDone},
		"a made-up state":   {Seq: 3, Action: "image", State: "splendid"},
	} {
		if err := b.r.Apply([]trivet.Report{bad}, 1); !errors.Is(err, trivet.ErrInvalid) {
			t.Errorf("%s: %v, want invalid", name, err)
		}
	}
}

func TestAttemptsAreUsedUp(t *testing.T) {
	b := start(t, workflow.Machine{AgentUp: true})
	b.grant()
	b.must(b.report("wipe", 1, trivet.StepFailed))
	if got := b.granted().Attempts["wipe"]; got != 1 {
		t.Errorf("the next agent gets %d used attempts, want 1", got)
	}
	b.must(b.report("wipe", 2, trivet.StepFailed))
	b.want("failed ssssDF...")
	if f := b.w.Status.Failure; f == nil || f.Step != "wipe" || f.Cause != "it broke" || f.Type != trivet.FaultMachine {
		t.Errorf("failure %+v", f)
	}
	if err := b.report("image", 1, trivet.StepDone); !errors.Is(err, trivet.ErrFenced) {
		t.Errorf("a report after the end: %v, want fenced", err)
	}
}

// An agent that reports the failure of its first attempt again and again uses up the attempts as another does: there is
// an event for each.
func TestRepeatedFailuresUseUpTheAttempts(t *testing.T) {
	b := start(t, workflow.Machine{AgentUp: true})
	b.grant()
	before, failures := len(b.r.Events), 0
	for b.w.Status.State == trivet.WorkflowRunning && failures < 10 {
		b.must(b.report("wipe", 1, trivet.StepRunning))
		b.must(b.report("wipe", 1, trivet.StepFailed))
		failures++
	}
	if most := b.w.Status.Step("wipe").MaxAttempts; failures != most || len(b.r.Events) != before+most {
		t.Errorf("after %d failures of at most %d, with %d events, the run is %s", failures, most,
			len(b.r.Events)-before, b.w.Status.State)
	}
}

func TestAResetResumesAfterTheLastReport(t *testing.T) {
	b := start(t, workflow.Machine{})
	b.r.ReachBootStep(trivet.StepKernel)
	b.grant()
	b.must(b.report("wipe", 1, trivet.StepDone))
	b.must(b.report("image", 1, trivet.StepRunning))
	b.r.ReachBootStep(trivet.StepScript)
	b.want("booting sDDR.D...")
	b.grant()
	b.want("running sDDDDDR..")
	work := b.granted()
	if fmt.Sprint(work.Done) != "[wipe]" || work.Attempts["image"] != 0 {
		t.Errorf("the new agent has done %v, attempts %v", work.Done, work.Attempts)
	}
	if b.w.Status.Resets != 1 {
		t.Errorf("resets %d, want 1", b.w.Status.Resets)
	}
	for range 4 {
		b.r.Grant(9)
	}
	if f := b.w.Status.Failure; f == nil || f.Type != trivet.FaultMachine {
		t.Errorf("a machine that keeps resetting: %+v", f)
	}
}

func TestARebootInTheMiddle(t *testing.T) {
	b := start(t, workflow.Machine{AgentUp: true})
	b.w.Spec.Actions = []trivet.Action{{Name: "flash", Use: "command"}, {Name: "again", Use: "reboot"},
		{Name: "check", Use: "noop"}}
	b.r.Start(workflow.Machine{AgentUp: true})
	b.grant()
	b.must(b.report("flash", 1, trivet.StepDone))
	b.must(b.report("again", 1, trivet.StepDone))
	b.want("booting sR...DD.")
	if b.r.AgentReturned() {
		t.Error("the agent that is about to reboot got the run back")
	}
	b.grant()
	b.must(b.report("check", 1, trivet.StepDone))
	b.want("succeeded sDDDDDDD")
	if b.w.Status.Resets != 0 {
		t.Errorf("a wanted reboot was counted as %d resets", b.w.Status.Resets)
	}
}

// What counts as evidence begins with the first attempt of a step, and again where an agent was lost after it.
func TestTriedSince(t *testing.T) {
	m := workflow.Machine{Power: true}
	b := start(t, m)
	b.r.PowerSet()
	first := b.r.Now
	since := func() time.Time {
		s := b.w.Status
		s.Failure = &trivet.Failure{Step: trivet.StepDHCP}
		return workflow.TriedSince(&s)
	}
	b.r.Now = b.r.Now.Add(time.Minute)
	b.r.Expire(m)
	if got := since(); !got.Equal(first) || b.w.Status.Step(trivet.StepDHCP).Attempt != 2 {
		t.Errorf("in its second attempt, it is tried since %s, want %s", got, first)
	}
	b.grant()
	b.r.Now = b.r.Now.Add(time.Minute)
	b.r.DeclareLost(m, "silent")
	if got := since(); !got.Equal(b.r.Now) {
		t.Errorf("after its agent was lost, it is tried since %s, want %s", got, b.r.Now)
	}
}

func TestDeadlines(t *testing.T) {
	for name, c := range map[string]struct {
		m     workflow.Machine
		until func(*bench)
		fires int // how many times the deadline passes until the run has failed
		cause string
		fault trivet.FailureType
	}{
		"the BMC never answers": {workflow.Machine{Power: true}, func(*bench) {}, 3, "BMC", trivet.FaultMachine},
		"never boots, no BMC":   {workflow.Machine{}, func(*bench) {}, 2, "no DHCP request", trivet.FaultMachine},
		"no script": {workflow.Machine{}, func(b *bench) { b.r.ReachBootStep(trivet.StepDHCP) }, 2,
			"did not fetch its boot script", trivet.FaultMachine},
		"no kernel": {workflow.Machine{}, func(b *bench) { b.r.ReachBootStep(trivet.StepScript) }, 2,
			"did not fetch kernel", trivet.FaultMachine},
		"no hello": {workflow.Machine{}, func(b *bench) { b.r.ReachBootStep(trivet.StepKernel) }, 2, "no hello",
			trivet.FaultMachine},
		"an action hangs": {workflow.Machine{}, func(b *bench) { b.grant() }, 3, "did not end attempt 1 of wipe",
			trivet.FaultMachine},
		"no first boot": {workflow.Machine{}, func(b *bench) {
			b.grant()
			for _, a := range []string{"wipe", "image", "reboot"} {
				b.must(b.report(a, 1, trivet.StepDone))
			}
		}, 2, "phone home", trivet.FaultImage},
	} {
		t.Run(name, func(t *testing.T) {
			b := start(t, c.m)
			c.until(b)
			fires := 0
			for ; !b.w.Status.State.Ended() && fires < 20; fires++ {
				b.r.Expire(c.m)
			}
			f := b.w.Status.Failure
			if f == nil || !strings.Contains(f.Cause, c.cause) || f.Type != c.fault || fires != c.fires {
				t.Errorf("after %d deadlines: %+v; want %d, %q, %s", fires, f, c.fires, c.cause, c.fault)
			}
		})
	}
}

func TestALostAgent(t *testing.T) {
	withPower := workflow.Machine{Power: true}
	b := start(t, withPower)
	b.grant()
	if got := b.r.DeclareLost(withPower, "silent for 45s"); got != (workflow.Remedy{RaiseEpoch: true,
		PowerCycle: true}) {
		t.Errorf("remedy with power: %+v", got)
	}
	if b.r.AgentReturned() {
		t.Error("an agent that a remedy replaced got the run back")
	}

	b = start(t, workflow.Machine{})
	b.grant()
	if got := b.r.DeclareLost(workflow.Machine{}, "silent for 45s"); got != (workflow.Remedy{}) {
		t.Errorf("remedy without power: %+v", got)
	}
	b.want("booting sR.......")
	if !b.r.AgentReturned() {
		t.Error("an agent that was not replaced may not go on")
	}
	b.want("running ssssDR...")
}
