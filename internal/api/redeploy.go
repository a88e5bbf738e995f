package api

import (
	"net/http"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/fleet"
	"github.com/trivet-project/trivet/internal/workflow"
)

func (h *Handler) redeploy(w http.ResponseWriter, r *http.Request, c *caller) error {
	var req trivet.RedeployRequest
	name, err := h.provisionRequest(w, r, &req)
	if err != nil {
		return err
	}
	return done(w, h.Fleet.Redeploy(r.Context(), name, req, c.account))
}

func (h *Handler) planRedeploy(w http.ResponseWriter, r *http.Request, _ *caller) error {
	name, err := fullName(r)
	if err != nil {
		return err
	}
	d, err := h.Fleet.PlanRedeploy(r.Context(), name)
	if err != nil {
		return err
	}
	return respond(w, http.StatusOK, planOf(d))
}

// planOf returns what a client sees of a redeployment. What may be secret is hidden as in a run that is rendered.
func planOf(d *fleet.Redeployment) *trivet.RedeployPlan {
	p, mask := d.Provision, newRunMask(d.Provision.Spec.Parameters)
	mask.addDefaults(d.Template)
	out := &trivet.RedeployPlan{Project: p.Project, Provision: p.Name, Machine: p.Status.Machine,
		Address: p.Status.Address, Template: p.Spec.Template, Run: p.Status.Workflow, Changes: []trivet.RunChange{},
		Plan: d.ID}
	if d.Former != nil {
		out.Installed = d.Former.Status.Ended
		out.Changes = workflow.Differences(&d.Former.Spec, &d.Run.Spec, mask.changed)
	}
	return out
}

// changed returns a value that differs between two runs without secrets.
func (m *runMask) changed(name string, v any) any {
	if text, ok := v.(string); ok && (name == "userData" || name == "networkData") {
		return hiddenText(text)
	}
	return m.value(name, v)
}
