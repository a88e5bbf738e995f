package lab

import (
	"bytes"
	"os"
	"slices"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

// A machine in service is installed again: with its template as it is now, and under its provision and its address.
func TestRedeploy(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	m := s.installed("m")
	before := s.mustServe("m", m)
	plan, err := s.client.PlanRedeploy(t.Context(), "default", "m")
	s.must(err)
	if plan.Machine != "m" || plan.Run != "m-1" || len(plan.Changes) > 0 || plan.Address != before.Status.Address {
		t.Errorf("the plan before a change: %+v", plan)
	}
	_, err = client.Of[trivet.Template](s.client).Modify(t.Context(), "demo", func(template *trivet.Template) error {
		wipe := trivet.Action{Name: "clean", Use: "wipe", With: map[string]any{"mode": "erase"}}
		template.Spec.Actions = append([]trivet.Action{wipe}, template.Spec.Actions...)
		return nil
	})
	s.must(err)
	if err := s.client.Redeploy(t.Context(), "default", "m", trivet.RedeployRequest{Plan: plan.Plan}); err == nil {
		t.Error("it was redeployed by the plan before the change")
	}
	plan, err = s.client.PlanRedeploy(t.Context(), "default", "m")
	s.must(err)
	if fields := changedFields(plan); !slices.Equal(fields,
		[]string{"actions", "actions.clean.use", "actions.clean.with.mode"}) {
		t.Errorf("the plan after a change: %+v", plan)
	}
	s.must(s.client.Redeploy(t.Context(), "default", "m", trivet.RedeployRequest{Plan: plan.Plan}))
	if rec := s.record(m); rec.Status.State != trivet.MachineClaimed || rec.Status.Provision != "m" {
		t.Errorf("the machine: %+v", rec.Status)
	}
	defer s.power(m)()
	w := s.until("m-2", func(w *trivet.Workflow) bool { return w.Status.State.Ended() })
	if st := w.Status.Step("clean"); w.Status.State != trivet.WorkflowSucceeded || st == nil ||
		st.State != trivet.StepDone || w.Spec.Redeploys != "m-1" {
		t.Errorf("the run: %+v", w)
	}
	after := s.mustServe("m", m)
	if after.UID != before.UID || after.Status.Address != before.Status.Address || after.Status.Attempts != 2 {
		t.Errorf("the provision was %+v, and is %+v", before.Status, after.Status)
	}
	raw, err := os.ReadFile(m.disk())
	s.must(err)
	if bytes.Contains(raw, []byte(secret)) {
		t.Error("what the former system has written is still on the disk")
	}
}

// changedFields names what a plan changes.
func changedFields(plan *trivet.RedeployPlan) []string {
	var names []string
	for _, change := range plan.Changes {
		names = append(names, change.Field)
	}
	return names
}

// mustServe checks that a machine serves a provision.
func (s *site) mustServe(provision string, m *Machine) *trivet.Provision {
	s.Helper()
	p, err := client.Of[trivet.Provision](s.client).Get(s.Context(), provision)
	s.must(err)
	rec := s.record(m)
	if p.Status.State != trivet.ProvisionSucceeded || p.Status.Machine != m.Name ||
		rec.Status.State != trivet.MachineActive || rec.Status.Provision != provision {
		s.Errorf("the provision: %+v, the machine: %+v", p.Status, rec.Status)
	}
	return p
}
