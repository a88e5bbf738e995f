package api

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"reflect"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/apitypes"
	"github.com/trivet-project/trivet/internal/auth"
)

// admitMachine keeps each MAC with one machine, by records named after the MACs, and refuses to delete a machine with
// a run.
func (h *Handler) admitMachine(c *change, old, next *trivet.Machine) error {
	if next == nil {
		if err := h.mayDeleteMachine(c, old); err != nil {
			return err
		}
	}
	if old == nil {
		// a machine that a person creates is accepted
		next.Status = trivet.MachineStatus{State: trivet.MachineAvailable}
	}
	if err := h.checkBMC(c, old, next); err != nil {
		return err
	}
	if err := h.moveMACs(c, old, next); err != nil {
		return err
	}
	return h.moveAddresses(c, old, next)
}

// checkBMC refuses a BMC to whose address its secret may not be sent. A name is resolved when the secret is used, and
// checked then.
func (h *Handler) checkBMC(c *change, old, next *trivet.Machine) error {
	if next == nil || next.Spec.BMC == nil || old != nil && old.Spec.BMC != nil && *old.Spec.BMC == *next.Spec.BMC {
		return nil
	}
	b := next.Spec.BMC
	secret, err := h.Fleet.Secrets.In(c.tx).Get(b.Secret)
	if errors.Is(err, trivet.ErrNotFound) {
		return &trivet.FieldError{Field: "spec.bmc.secret", Problem: fmt.Sprintf(
			"names secret %q, which does not exist; an admin creates it, with the BMC's address in spec.addresses",
			b.Secret)}
	}
	if err != nil {
		return err
	}
	addr, err := netip.ParseAddr(b.Host())
	isName := err != nil
	if len(secret.Spec.Addresses) == 0 || !isName && !secret.Spec.Allows(addr) {
		return &trivet.FieldError{Field: "spec.bmc.address", Problem: fmt.Sprintf(
			"%s is not among the addresses that secret %s may be sent to; an admin adds it to its spec.addresses",
			b.Host(), b.Secret)}
	}
	return nil
}

// moveMACs reserves the new MACs and releases the removed ones.
func (h *Handler) moveMACs(c *change, old, next *trivet.Machine) error {
	macs := h.Fleet.MACs.In(c.tx)
	if next != nil {
		for i, nic := range next.Spec.NICs {
			if old != nil && old.HasMAC(nic.MAC) {
				continue
			}
			mac := &trivet.MAC{Meta: trivet.Meta{Kind: "MAC", Name: nic.MAC}, Spec: trivet.MACSpec{Machine: next.Name}}
			holder, err := macs.Get(nic.MAC)
			switch {
			case err == nil && holder.Spec.Machine != next.Name:
				return &trivet.Error{Op: "hold MAC", Kind: "Machine", Name: next.Name,
					Hint: fmt.Sprintf("trivet describe machine %s; delete it, or take the MAC out of it",
						holder.Spec.Machine),
					Err: fmt.Errorf("%w: spec.nics[%d].mac %s belongs to machine %s", trivet.ErrExists, i, nic.MAC,
						holder.Spec.Machine)}
			case errors.Is(err, trivet.ErrNotFound):
				err = macs.Put(mac)
			}
			if err != nil {
				return err
			}
		}
	}
	if old != nil {
		for _, nic := range old.Spec.NICs {
			if next != nil && next.HasMAC(nic.MAC) {
				continue
			}
			if err := macs.Delete(nic.MAC); err != nil && !errors.Is(err, trivet.ErrNotFound) {
				return err
			}
		}
	}
	return nil
}

// moveAddresses releases the addresses of removed ports, so that they can be assigned again.
func (h *Handler) moveAddresses(c *change, old, next *trivet.Machine) error {
	if old == nil {
		return nil
	}
	addresses := h.Fleet.Addresses.In(c.tx)
	for _, nic := range old.Spec.NICs {
		if next != nil && next.HasMAC(nic.MAC) {
			continue
		}
		for _, a := range h.Fleet.Addresses.ListBy("mac", nic.MAC) {
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

func (h *Handler) mayDeleteMachine(c *change, m *trivet.Machine) error {
	if p := m.Status.Provision; p != "" {
		if _, err := h.Fleet.Provisions.In(c.tx).Get(p); err == nil {
			return &trivet.Error{Op: "delete", Kind: "Machine", Name: m.Name,
				Hint: "delete that first: trivet delete provision " + p,
				Err:  fmt.Errorf("%w: provision %s has it", trivet.ErrConflict, p)}
		}
	}
	if m.Status.Workflow == "" {
		return nil
	}
	w, err := h.Fleet.Workflows.In(c.tx).Get(m.Status.Workflow)
	if errors.Is(err, trivet.ErrNotFound) || err == nil && w.Status.State.Ended() {
		return nil
	}
	if err != nil {
		return err
	}
	return &trivet.Error{Op: "delete", Kind: "Machine", Name: m.Name,
		Hint: "delete its provision, or quarantine it, to cancel the run",
		Err:  fmt.Errorf("%w: workflow %s is %s on it", trivet.ErrConflict, w.Name, w.Status.State)}
}

// machineRoutes are the operations on machines besides their records.
func (h *Handler) machineRoutes() {
	h.add(route{method: "POST", path: "/v1/machines/{name}/accept", verb: auth.Write, kind: "Machine",
		status:  http.StatusNoContent,
		summary: "Make a discovered or releasing machine available; return a quarantined one to its former state",
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
	body, err := h.readBody(w, r, 64<<10)
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
