package api

import (
	"errors"
	"fmt"
	"net/http"
	"reflect"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/apitypes"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
)

// admitMachine keeps each MAC with one machine, by records named after the MACs. What a deleted machine has is deleted
// with it, by reference.
func (h *Handler) admitMachine(c *change, old, next *trivet.Machine) error {
	if next == nil {
		return nil
	}
	if old == nil {
		// a machine that a person creates is accepted
		next.Status = trivet.MachineStatus{State: trivet.MachineAvailable}
	}
	if err := h.reserveMACs(c.tx, old, next); err != nil || old == nil {
		return err
	}
	return h.releasePorts(c.tx, old, next)
}

// reserveMACs reserves the MACs of new ports.
func (h *Handler) reserveMACs(tx *store.Tx, old, next *trivet.Machine) error {
	macs := h.Fleet.MACs.In(tx)
	for i, nic := range next.Spec.NICs {
		if old != nil && old.HasMAC(nic.MAC) {
			continue
		}
		holder, err := macs.Get(nic.MAC)
		switch {
		case errors.Is(err, trivet.ErrNotFound) || err == nil && !h.holds(tx, holder):
			err = macs.Put(&trivet.MAC{Meta: trivet.Meta{Kind: "MAC", Name: nic.MAC},
				Spec: trivet.MACSpec{Machine: next.Name, MachineUID: next.UID}})
		case err == nil && holder.Spec.MachineUID != next.UID:
			return &trivet.Error{Op: "hold MAC", Kind: "Machine", Name: next.Name,
				Hint: fmt.Sprintf("trivet describe machine %s; delete it, or take the MAC out of it",
					holder.Spec.Machine),
				Err: fmt.Errorf("%w: spec.nics[%d].mac %s belongs to machine %s", trivet.ErrExists, i, nic.MAC,
					holder.Spec.Machine)}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// holds reports whether the machine of a MAC's record exists.
func (h *Handler) holds(tx *store.Tx, mac *trivet.MAC) bool {
	m, err := h.Fleet.Machines.In(tx).Get(mac.Spec.Machine)
	return !errors.Is(err, trivet.ErrNotFound) && (err != nil || m.UID == mac.Spec.MachineUID)
}

// releasePorts releases the MACs and addresses of removed ports, so that they can be assigned again.
func (h *Handler) releasePorts(tx *store.Tx, old, next *trivet.Machine) error {
	addresses := h.Fleet.Addresses.In(tx)
	for _, nic := range old.Spec.NICs {
		if next.HasMAC(nic.MAC) {
			continue
		}
		if err := h.Fleet.MACs.In(tx).Delete(nic.MAC); err != nil && !errors.Is(err, trivet.ErrNotFound) {
			return err
		}
		for _, a := range h.Fleet.Addresses.ListBy(state.ByMAC, nic.MAC) {
			if now, err := addresses.Get(a.Name); err != nil || now.Spec.MAC != nic.MAC {
				continue
			}
			if err := addresses.Delete(a.Name); err != nil {
				return err
			}
		}
	}
	return nil
}

// machineRoutes are the operations on machines besides their records.
func (h *Handler) machineRoutes() {
	h.add(route{method: "POST", path: "/v1/machines/{name}/accept", verb: auth.Write, kind: "Machine",
		status:  http.StatusNoContent,
		summary: "Make a discovered or quarantined machine available",
		serve: func(w http.ResponseWriter, r *http.Request, _ *caller) error {
			return done(w, h.Fleet.Accept(r.Context(), r.PathValue("name")))
		}})
	h.add(route{method: "POST", path: "/v1/machines/{name}/quarantine", verb: auth.Write, kind: "Machine",
		status:  http.StatusNoContent,
		summary: "Exclude a machine from placement; a run on it is cancelled",
		in:      reflect.TypeFor[trivet.QuarantineRequest](), serve: h.quarantine})
	h.add(route{method: "GET", path: "/v1/machines/{name}/progress", verb: auth.Read, kind: "Machine",
		out:     reflect.TypeFor[trivet.Progress](),
		summary: "Last progress of the running action that its agent reported to this head; null if there is none",
		serve: func(w http.ResponseWriter, r *http.Request, _ *caller) error {
			return respond(w, http.StatusOK, h.Presence.Progress(r.PathValue("name")))
		}})
}

func (h *Handler) quarantine(w http.ResponseWriter, r *http.Request, _ *caller) error {
	body, err := readBody(w, r, 64<<10)
	if err != nil {
		return err
	}
	var q trivet.QuarantineRequest
	if err := apitypes.DecodeStrict(body, &q); err != nil {
		return err
	}
	if q.Reason == "" || len(q.Reason) > 1<<10 {
		return &trivet.FieldError{Field: "reason", Problem: "must have 1 to 1024 bytes"}
	}
	return done(w, h.Fleet.Quarantine(r.Context(), r.PathValue("name"), q.Reason))
}

func done(w http.ResponseWriter, err error) error {
	if err == nil {
		w.WriteHeader(http.StatusNoContent)
	}
	return err
}
