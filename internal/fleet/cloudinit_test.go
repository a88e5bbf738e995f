package fleet_test

import (
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
)

// A first boot that finished while cloud-init reports errors ends the run well, and the machine's history has them.
func TestCloudInitErrors(t *testing.T) {
	r := newRack(t)
	r.provision("p")
	r.must(r.hello("k1", r.machine().Status.Epoch))
	epoch := r.machine().Status.Epoch
	r.must(r.report(epoch, "k1", trivet.Report{Seq: 1, Action: "work", Attempt: 1, State: trivet.StepDone},
		trivet.Report{Seq: 2, Action: "reboot", Attempt: 1, State: trivet.StepDone}))
	w, err := r.Workflows.Get(trivet.Resolve("", r.machine().Status.Workflow))
	r.must(err)
	token := auth.BootToken{Machine: "m1", Epoch: epoch, Run: w.UID}
	for range 2 {
		r.must(r.PhoneHome(r.Context(), token, []string{"scripts_user failed", strings.Repeat("x", 5000)}))
	}
	w, err = r.Workflows.Get(w.FullName())
	r.must(err)
	if step := w.Status.Step(trivet.StepFirstBoot); w.Status.State != trivet.WorkflowSucceeded ||
		!strings.HasPrefix(step.Cause, "the first boot finished, and cloud-init reports: scripts_user failed; xx") {
		t.Errorf("%s: %+v", w.Status.State, step)
	}
	warned := 0
	for seq := int64(1); seq <= r.machine().Status.Events; seq++ {
		e, err := r.Events.Get(r.Context(), trivet.EventName(r.machine().UID, seq))
		r.must(err)
		if e.Spec.Reason == trivet.ReasonCloudInitFailed && e.Spec.Warning {
			warned++
		}
	}
	if warned != 1 {
		t.Errorf("%d warnings", warned)
	}
}
