package workflow_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/workflow"
)

// world is a machine with a BMC, its agent and the heads' deadlines, as far as the rules of a run concern them.
type world struct {
	w         *trivet.Workflow
	r         workflow.Run
	epoch     int64
	seq       int64
	attempt   bool     // the agent is at an attempt of the next action
	withheld  bool     // an agent has registered, and is not granted the run
	requested string   // of the BMC, and not done yet
	power     []string // what the BMC did
}

func newWorld() *world {
	w := &world{w: install()}
	w.r = workflow.Run{Spec: &w.w.Spec, Status: &w.w.Status, Now: time.Unix(1, 0), MaxResets: 3}
	w.r.Start(workflow.Machine{Power: true})
	w.request("cycle")
	return w
}

// request makes a power request, as fleet does: it is kept while the run is paused.
func (w *world) request(want string) {
	if p := w.w.Status.Paused; p != nil {
		p.Power = want
		return
	}
	w.requested = want
}

func (w *world) paused() bool { return w.w.Status.Paused != nil }

// starts reports whether an event does not happen while the run is paused: an agent begins no attempt, and heads count
// no deadline and no silence, and send nothing to the BMC.
func starts(event string) bool {
	return slices.Contains([]string{"begin", "expire", "lost", "bmc"}, event)
}

func (w *world) do(event string) {
	machine := workflow.Machine{Power: true}
	remedy := func(r workflow.Remedy) {
		if r.RaiseEpoch {
			w.epoch, w.attempt = w.epoch+1, false
		}
		if r.PowerCycle {
			w.request("cycle")
		}
	}
	switch event {
	case "bmc":
		if w.requested != "" {
			w.power, w.requested = append(w.power, w.requested), ""
			w.r.PowerSet()
		}
	case trivet.StepDHCP, trivet.StepScript, trivet.StepKernel:
		if w.r.ReachBootStep(event) && workflow.IsReset(event) {
			w.attempt = false
		}
	case "hello":
		w.epoch, w.seq, w.attempt = w.epoch+1, 0, false
		w.requested = ""
		if w.paused() {
			w.w.Status.Paused.Power = ""
		}
		w.withheld = !w.r.Grant(w.epoch) && w.paused()
	case "begin":
		if w.granted() && !w.attempt {
			w.attempt = true
			w.report(trivet.StepRunning, false)
		}
	case "done", "failed", "final":
		if w.granted() && w.attempt {
			w.attempt = false
			state := trivet.StepFailed
			if event == "done" {
				state = trivet.StepDone
			}
			w.report(state, event == "final")
		}
	case "phone":
		w.r.PhoneHome(nil)
	case "expire":
		remedy(w.r.Expire(machine))
	case "lost":
		remedy(w.r.DeclareLost(machine, "silent"))
	}
}

func (w *world) granted() bool {
	return w.w.Status.State == trivet.WorkflowRunning && w.w.Status.Epoch == w.epoch
}

func (w *world) report(state trivet.StepState, final bool) {
	for _, a := range w.w.Spec.Actions {
		if s := w.w.Status.Step(a.Name); s.State != trivet.StepDone {
			w.seq++
			err := w.r.Apply([]trivet.Report{{Seq: w.seq, Action: a.Name, Attempt: s.Failures + 1, State: state,
				Final: final, Cause: "it broke"}}, 1)
			if err != nil {
				panic(err)
			}
			return
		}
	}
}

func (w *world) pause() {
	if w.w.Status.State.Ended() || w.paused() {
		return
	}
	w.r.Pause("op", w.requested)
	w.requested = ""
}

func (w *world) resume() {
	if !w.paused() {
		return
	}
	if power := w.r.Resume("op"); power != "" {
		w.request(power)
	}
	if w.withheld { // the idle agent syncs
		w.epoch, w.withheld = w.epoch+1, false
		w.r.Grant(w.epoch)
	}
}

// outcome is all that matters of a run, without times and the numbers of epochs.
func (w *world) outcome() string {
	st := w.w.Status
	st.Started, st.Ended = time.Time{}, time.Time{}
	st.Epoch, st.SeedEpoch = min(st.Epoch, 1), 0
	st.Steps = slices.Clone(st.Steps)
	for i := range st.Steps {
		st.Steps[i].Started, st.Steps[i].First, st.Steps[i].Ended = time.Time{}, time.Time{}, time.Time{}
		// It may have been passed without being noticed, or have begun before a reset where it was held by a pause.
		if trivet.IsBootStep(st.Steps[i].Name) || st.Steps[i].State == trivet.StepWaiting {
			st.Steps[i].Attempt = max(st.Steps[i].Attempt, 1)
		}
	}
	text, _ := json.Marshal(st)
	return fmt.Sprintf("%s\npower %v and %q, at an attempt: %v", text, w.power, w.requested, w.attempt)
}

// A run that is paused and resumed, at any points, is afterwards as it is without.
func TestPauseAndResumeChangeNothingElse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		what := []string{"bmc", trivet.StepDHCP, trivet.StepScript, trivet.StepKernel, "hello", "begin", "begin",
			"begin", "done", "done", "done", "failed", "final", "phone", "expire", "lost"}
		events := rapid.SliceOfN(rapid.SampledFrom(what), 1, 60).Draw(t, "events")
		plain, other := newWorld(), newWorld()
		for i, event := range events {
			plain.do(event)
			if rapid.Bool().Draw(t, fmt.Sprint("pause before ", i)) {
				other.pause()
			}
			if other.paused() && starts(event) {
				other.resume()
			}
			requests := len(other.power)
			other.do(event)
			if other.paused() && (len(other.power) != requests || other.requested != "") {
				t.Fatal("power was requested while the run was paused")
			}
			if event == "hello" || i == len(events)-1 || rapid.Bool().Draw(t, fmt.Sprint("resume after ", i)) {
				other.resume()
			}
			if a, b := plain.outcome(), other.outcome(); a != b && !other.paused() {
				t.Fatalf("without a pause\n%s\nwith\n%s", a, b)
			}
		}
	})
}

// While a run is paused, an action that ends begins no other one.
func TestPausedRunBeginsNoAction(t *testing.T) {
	b := start(t, workflow.Machine{AgentUp: true})
	b.grant()
	b.must(b.report("wipe", 1, trivet.StepRunning))
	b.r.Pause("op", "")
	b.must(b.report("wipe", 1, trivet.StepDone))
	b.want("running ssssDD...")
	if b.w.Status.Current() != nil {
		t.Errorf("%s is running", b.w.Status.Current().Name)
	}
	b.r.Resume("op")
	b.want("running ssssDDR..")
	if s := b.w.Status.Step("image"); s.Note != "" || s.Attempt != 1 {
		t.Errorf("after it was resumed: %+v", s)
	}
	b.r.Pause("op", "")
	b.r.Cancel("the provision was deleted")
	if b.w.Status.Paused != nil {
		t.Error("a run that has ended is paused")
	}
}

// A machine that is reset while its run is paused boots again: no action says that it only waits to be resumed.
func TestPausedRunIsReset(t *testing.T) {
	b := start(t, workflow.Machine{AgentUp: true})
	b.grant()
	b.must(b.report("wipe", 1, trivet.StepRunning))
	b.r.Pause("op", "")
	b.must(b.report("wipe", 1, trivet.StepDone))
	if note := b.w.Status.Step("image").Note; !strings.Contains(note, "paused") {
		t.Errorf("while it is paused: %q", note)
	}
	b.r.ReachBootStep(trivet.StepScript)
	b.r.Resume("op")
	if s := b.w.Status.Step("image"); s.Note != "" || b.w.Status.State != trivet.WorkflowBooting {
		t.Errorf("after a reset, and resumed: %s, %+v", b.w.Status.State, s)
	}
}

// An agent that registers while its run is paused is granted it afterwards, by its next sync.
func TestPausedRunIsNotGranted(t *testing.T) {
	b := start(t, workflow.Machine{})
	b.r.Pause("op", "")
	b.r.ReachBootStep(trivet.StepKernel)
	if b.r.Grant(1) {
		t.Fatal("the run was granted while it was paused")
	}
	b.want("booting sDDDR....")
	m, idle := &trivet.Machine{Status: trivet.MachineStatus{Epoch: 1}}, &trivet.Sync{}
	if what, err := workflow.DecideSync(m, b.w, idle); what != workflow.WriteNothing || err != nil {
		t.Errorf("a sync while it is paused writes %v, %v", what, err)
	}
	b.r.Resume("op")
	if what, err := workflow.DecideSync(m, b.w, idle); what != workflow.WriteGrant || err != nil {
		t.Errorf("a sync after it was resumed writes %v, %v", what, err)
	}
	b.grant()
	b.want("running sDDDDR...")
}

// A run whose agent would go on is not paused, whether it is heard or not.
func TestAgentsOfEarlierReleasesAreNotPaused(t *testing.T) {
	for name, c := range map[string]struct {
		release trivet.Release
		state   trivet.WorkflowState
		epoch   int64
		refused bool
	}{
		"no agent":           {"", trivet.WorkflowBooting, 0, false},
		"an old agent":       {"", trivet.WorkflowRunning, 1, true},
		"an old, lost agent": {"0.3", trivet.WorkflowBooting, 1, true},
		"an agent":           {"0.3.1", trivet.WorkflowRunning, 1, false},
		"a later one":        {"0.4", trivet.WorkflowBooting, 1, false},
		"its work is done":   {"", trivet.WorkflowStarting, 1, false},
	} {
		w := install()
		w.Status.State, w.Status.Epoch = c.state, c.epoch
		err := workflow.CheckPause(&trivet.Machine{Status: trivet.MachineStatus{AgentRelease: c.release}}, w)
		if (err != nil) != c.refused || err != nil && !errors.Is(err, trivet.ErrConflict) {
			t.Errorf("%s: %v, want refused: %v", name, err, c.refused)
		}
	}
}
