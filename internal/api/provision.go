package api

import (
	"context"
	"fmt"
	"net/http"
	"reflect"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/apitypes"
	"github.com/trivet-project/trivet/internal/auth"
)

// provisionRoutes are the operations on provisions besides their records.
func (h *Handler) provisionRoutes() {
	const one = inProject + "provisions/{name}/"
	for _, op := range []struct {
		name, summary string
		do            func(ctx context.Context, provision, by string) error
	}{
		{"pause", "Pause a provision: it claims no machine, and its run starts no further action", h.Fleet.Pause},
		{"resume", "Resume a provision that is paused", h.Fleet.Resume},
	} {
		h.add(route{method: "POST", path: one + op.name, verb: auth.Write, kind: "Provision",
			status: http.StatusNoContent, summary: op.summary,
			serve: func(w http.ResponseWriter, r *http.Request, c *caller) error {
				name, err := fullName(r)
				if err == nil {
					err = op.do(r.Context(), name, c.account)
				}
				return done(w, err)
			}})
	}
	h.add(route{method: "POST", path: one + "retry", verb: auth.Write, kind: "Provision",
		status: http.StatusNoContent, summary: "Give a provision that failed another run",
		in: reflect.TypeFor[trivet.RetryRequest](), serve: h.retry})
	h.add(route{method: "POST", path: inProject + "provisions/render", verb: auth.Write, kind: "Provision",
		summary: "Show the run that a provision would start, without starting it", preview: true,
		in: reflect.TypeFor[trivet.RenderRequest](), out: reflect.TypeFor[trivet.Rendered](), serve: h.render})
	h.add(route{method: "POST", path: one + "replace", verb: auth.Write, kind: "Provision",
		status: http.StatusNoContent, summary: "Replace the machine of a provision by another one",
		in: reflect.TypeFor[trivet.ReplaceRequest](), serve: h.replaceMachine})
	h.add(route{method: "POST", path: one + "redeploy", verb: auth.Write, kind: "Provision",
		status: http.StatusNoContent, summary: "Install the machine of a provision again, with the same configuration",
		in: reflect.TypeFor[trivet.RedeployRequest](), serve: h.redeploy})
	h.add(route{method: "POST", path: one + "redeploy/plan", verb: auth.Write, kind: "Provision", preview: true,
		summary: "Show what a redeploy of a provision would do, without doing it",
		out:     reflect.TypeFor[trivet.RedeployPlan](), serve: h.planRedeploy})
	h.add(route{method: "GET", path: "/v1/provisions/queue", verb: auth.Read, kind: "Provision",
		summary: "Places of provisions that wait, among those that wait for the same: of all, by age, or of one",
		query:   []string{"project: of the one provision", "name: of the one provision, which may be paused"},
		out:     reflect.TypeFor[trivet.Queue](), serve: h.queue})
}

func (h *Handler) retry(w http.ResponseWriter, r *http.Request, c *caller) error {
	var req trivet.RetryRequest
	name, err := h.provisionRequest(w, r, &req)
	if err != nil {
		return err
	}
	return done(w, h.Fleet.Retry(r.Context(), name, req, c.account))
}

func (h *Handler) replaceMachine(w http.ResponseWriter, r *http.Request, c *caller) error {
	var req trivet.ReplaceRequest
	name, err := h.provisionRequest(w, r, &req)
	if err != nil {
		return err
	}
	return done(w, h.Fleet.Replace(r.Context(), name, req, c.account))
}

// provisionRequest reads an operation on a provision.
func (h *Handler) provisionRequest(w http.ResponseWriter, r *http.Request, req any) (provision string, err error) {
	if provision, err = fullName(r); err != nil {
		return "", err
	}
	body, err := h.readBody(w, r, 4<<10)
	if err != nil {
		return "", err
	}
	return provision, apitypes.DecodeStrict(body, req)
}

// queue counts places when it is asked: a place is not stored, as it changes with each provision before.
func (h *Handler) queue(w http.ResponseWriter, r *http.Request, _ *caller) error {
	project, name := r.URL.Query().Get("project"), r.URL.Query().Get("name")
	out := trivet.Queue{Items: []trivet.QueuePlace{}}
	if name == "" && project == "" {
		if places, more := h.Fleet.Places(); len(places) > 0 {
			out.Items, out.More = places, more
		}
		return respond(w, http.StatusOK, out)
	}
	full := trivet.FullName(project, name)
	if err := trivet.ValidateFullName(full); err != nil {
		return fmt.Errorf("queue: %w", err)
	}
	p, err := h.Fleet.Provisions.GetShared(full)
	if err != nil {
		return err
	}
	if place, ok := h.Fleet.QueuePlace(p); ok {
		out.Items = append(out.Items, place)
	}
	return respond(w, http.StatusOK, out)
}
