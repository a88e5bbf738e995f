package fleet_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/fleet"
	"github.com/trivet-project/trivet/internal/store"
)

// A machine that is a head is not taken from its provision by any command, until the head is removed.
func TestHeadKeepsItsMachine(t *testing.T) {
	r := newServed(t, unchanged)
	setHead := func(state trivet.HeadState) {
		m := r.machineNamed("p1")
		r.write(func(tx *store.Tx) error {
			return r.Heads.In(tx).Put(&trivet.Head{Meta: trivet.Meta{Name: "head3"}, Spec: trivet.HeadSpec{
				Role: trivet.RoleVoter}, Status: trivet.HeadStatus{State: state, Machine: "p1", MachineUID: m.UID}})
		})
	}
	commands := map[string]func() error{
		"release": func() error {
			return r.StartRelease(t.Context(), "p1", trivet.ReleaseRequest{Provision: "a"})
		},
		"check": func() error {
			return r.StartRelease(t.Context(), "p1", trivet.ReleaseRequest{Mode: trivet.ReleaseCheck, Provision: "a"})
		},
		"rename":   func() error { return r.Rename(t.Context(), "p1", trivet.RenameRequest{Name: "new-name"}, "alice") },
		"redeploy": func() error { return r.redeploy("a", trivet.RedeployRequest{}) },
		"replace":  func() error { return r.replace("a", trivet.ReplaceRequest{}) },
		"delete": func() error {
			_, err := r.Store.Update(t.Context(), func(tx *store.Tx) error { return r.Release(tx, r.provisionNamed("a")) })
			return err
		},
	}
	for _, state := range []trivet.HeadState{trivet.HeadJoining, trivet.HeadMember} {
		setHead(state)
		before := r.machineNamed("p1")
		for name, do := range commands {
			if err := do(); !errors.Is(err, trivet.ErrConflict) || !strings.Contains(err.Error(), "it is head3 of this cluster") {
				t.Errorf("%s of a head that is %s: %v", name, state, err)
			}
		}
		if now := r.machineNamed("p1"); now.Revision != before.Revision {
			t.Errorf("the machine has changed: %+v", now.Status)
		}
	}
	r.must(r.Quarantine(t.Context(), "p1", "fan is loud"))
	r.must(r.Accept(t.Context(), "p1"))
	if st := r.machineNamed("p1").Status; st.State != trivet.MachineActive || st.Intent != nil {
		t.Errorf("after a quarantine: %+v", st)
	}
	setHead(trivet.HeadRemoved)
	r.must(commands["release"]())
	if st := r.machineNamed("p1").Status; st.State != trivet.MachineReleasing || st.Provision != "" {
		t.Errorf("after the head was removed: %+v", st)
	}
}

// A plan differs with what is installed, with the machine and with the role, and not with what was learnt or counted.
func TestHeadPlan(t *testing.T) {
	p := &trivet.Provision{Spec: trivet.ProvisionSpec{Head: &trivet.ProvisionHead{}}}
	run := func() *trivet.Workflow {
		return &trivet.Workflow{Spec: trivet.WorkflowSpec{Template: "head", MachineUID: "1",
			Actions: []trivet.Action{{Name: "h", Use: "head", With: map[string]any{"config": "dhcp: [eno1]"}}},
			Images:  []trivet.ImageRef{{Name: "debian", ImageSpec: trivet.ImageSpec{Format: "raw"}}}}}
	}
	plan := fleet.HeadPlan(p, run())
	for name, change := range map[string]func(*trivet.Workflow){
		"actions": func(w *trivet.Workflow) { w.Spec.Actions[0].With["config"] = "dhcp: [eno2]" },
		"image":   func(w *trivet.Workflow) { w.Spec.Images[0].Blob.Digest = "sha256:1" },
		"seed":    func(w *trivet.Workflow) { w.Spec.Seed.UserData = "x" },
		"machine": func(w *trivet.Workflow) { w.Spec.MachineUID = "2" },
		"disk":    func(w *trivet.Workflow) { w.Spec.Disk.Serial = "S" },
	} {
		w := run()
		if change(w); fleet.HeadPlan(p, w) == plan {
			t.Errorf("%s: the plan is the same", name)
		}
	}
	p.Spec.Head.Role = trivet.RoleWitness
	if fleet.HeadPlan(p, run()) == plan {
		t.Error("the role is not in the plan")
	}
	p.Spec.Head.Role = trivet.RoleVoter
	w := run()
	w.Spec.Epoch, w.Spec.Attempt, w.Spec.Times = 7, 2, []trivet.StepTime{{}}
	if fleet.HeadPlan(p, w) != plan {
		t.Error("the plan differs with what is counted")
	}
}
