package api

import (
	"context"
	"net/http"
	"reflect"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/apitypes"
	"github.com/trivet-project/trivet/internal/auth"
)

// maxPowerReads bounds the BMCs that one head asks at a time for their power state.
const maxPowerReads = 16

// powerRoutes are the power of machines. A request is written as the machine's intent, which a controller carries out.
// To read the state, a head asks the BMC itself, and records what it reports; that takes a session of the BMC, so it
// needs the right to change machines.
func (h *Handler) powerRoutes() {
	const path = "/v1/machines/{name}/power"
	h.add(route{method: "POST", path: path, verb: auth.Write, kind: "Machine", status: http.StatusNoContent,
		summary: "Request that the BMC of a machine powers it on or off, or cycles it",
		in:      reflect.TypeFor[trivet.PowerRequest](), serve: h.requestPower})
	h.add(route{method: "GET", path: path, verb: auth.Write, kind: "Machine",
		summary: "Ask the BMC of a machine for its power state",
		out:     reflect.TypeFor[trivet.PowerState](), serve: h.readPower})
}

func (h *Handler) requestPower(w http.ResponseWriter, r *http.Request, _ *caller) error {
	body, err := h.readBody(w, r, 4<<10)
	if err != nil {
		return err
	}
	var req trivet.PowerRequest
	if err := apitypes.DecodeStrict(body, &req); err != nil {
		return err
	}
	switch req.Want {
	case trivet.PowerOn, trivet.PowerOff, trivet.PowerCycle:
		return done(w, h.Fleet.Power(r.Context(), r.PathValue("name"), req))
	}
	return &trivet.FieldError{Field: "want", Problem: "must be on, off or cycle"}
}

func (h *Handler) readPower(w http.ResponseWriter, r *http.Request, _ *caller) error {
	m, err := h.Fleet.Machines.GetShared(r.PathValue("name"))
	if err != nil {
		return err
	}
	failed := &trivet.Error{Op: "read the power of", Kind: "Machine", Name: m.Name, Err: trivet.ErrConflict}
	if m.Spec.BMC == nil {
		failed.Hint = "it has no BMC (spec.bmc)"
		return failed
	}
	select {
	case h.powerReads <- struct{}{}:
		defer func() { <-h.powerReads }()
	case <-r.Context().Done():
		return r.Context().Err()
	}
	power, err := h.Power(r.Context(), m)
	h.notePower(r.Context(), m, power, err)
	if err != nil { // not by its kind: the caller is not who the BMC refused, and another head would not get further
		failed.Hint = "BMC " + m.Spec.BMC.Address + ": " + err.Error()
		return failed
	}
	return respond(w, http.StatusOK, trivet.PowerState{Power: power})
}

// notePower records what a BMC has reported, or why it did not. The caller gets that also where it cannot be written,
// as without a quorum.
func (h *Handler) notePower(ctx context.Context, m *trivet.Machine, power string, cause error) {
	if ctx.Err() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, notePowerTimeout)
	defer cancel()
	if err := h.Fleet.ObservePower(ctx, m, power, cause); err != nil {
		h.Log.Debug("the power of a machine was not recorded", "machine", m.Name, "error", err)
	}
}

// notePowerTimeout bounds how long the caller waits for the record.
const notePowerTimeout = 2 * time.Second
