package workflow_test

import (
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/workflow"
)

// A run continues a former one only after what that one has done.
func TestContinue(t *testing.T) {
	former := &trivet.Workflow{Meta: trivet.Meta{Project: "default", Name: "w-1"}, Spec: trivet.WorkflowSpec{
		Actions: []trivet.Action{{Name: "wipe", Use: "wipe"}, {Name: "seed", Use: "seed"}, {Name: "head", Use: "head"},
			{Name: "image", Use: "image"}, {Name: "reboot", Use: "reboot"}}},
		Status: trivet.WorkflowStatus{State: trivet.WorkflowFailed, Steps: []trivet.Step{
			{Name: "wipe", State: trivet.StepDone}, {Name: "seed", State: trivet.StepDone},
			{Name: "head", State: trivet.StepDone},
			{Name: "image", State: trivet.StepFailed}, {Name: "reboot"}, {Name: trivet.StepFirstBoot}}}}
	for action, want := range map[string]string{
		"wipe": "", "seed": "wipe", "image": "wipe",
		"reboot": "comes after image, which is not done",
		"nope":   "is not one of its actions, which are wipe, seed, head, image, reboot",
		"dhcp":   "is not one of its actions",
	} {
		done, err := workflow.Continue(former, action)
		var names []string
		for _, s := range done {
			names = append(names, s.Name)
			if s.State != trivet.StepDone || s.Note != "done by w-1" {
				t.Errorf("%s: %+v", action, s)
			}
		}
		got := strings.Join(names, " ")
		if err != nil {
			got = err.Error()
		}
		if err == nil && got != want || err != nil && (want == "" || !strings.Contains(got, want)) {
			t.Errorf("from %s: %s, want %s", action, got, want)
		}
	}
	former.Status.Step(trivet.StepFirstBoot).Attempt = 1
	if _, err := workflow.Continue(former, "wipe"); err == nil || !strings.Contains(err.Error(), "booted its disk") {
		t.Errorf("after its first boot: %v", err)
	}
}

// A run that continues another one begins, after the boot, with the action that was retried.
func TestContinuedRun(t *testing.T) {
	w := install()
	w.Status.Steps = []trivet.Step{{Name: "wipe", State: trivet.StepDone, Note: "done by w-1"}}
	b := &bench{T: t, w: w}
	b.r = workflow.Run{Spec: &w.Spec, Status: &w.Status, MaxResets: 3}
	b.r.Start(workflow.Machine{})
	b.want("booting sR...D...")
	b.r.ReachBootStep(trivet.StepKernel)
	b.grant()
	b.want("running sDDDDDR..")
	if done := b.granted().Done; len(done) != 1 || done[0] != "wipe" {
		t.Errorf("its agent gets as done %v", done)
	}
}
