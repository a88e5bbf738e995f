package api

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"reflect"
	"strings"

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
	if p := next.Spec.Platform; p != "" && (old == nil || old.Spec.Platform != p) { // a former one may be deleted by force
		if err := c.needRecord("spec.platform", "Platform", p); err != nil {
			return err
		}
	}
	if err := h.checkBMC(c, old, next); err != nil {
		return err
	}
	if err := h.checkAddresses(c.tx, old, next); err != nil {
		return err
	}
	if err := h.reserveMACs(c.tx, old, next); err != nil {
		return err
	}
	if old == nil {
		return h.Fleet.CheckNewName(c.tx, next.Name)
	}
	return h.releasePorts(c.tx, old, next)
}

// checkBMC refuses a BMC to whose address its secret may not be sent. A name is resolved when the secret is used, and
// checked then.
func (h *Handler) checkBMC(c *change, old, next *trivet.Machine) error {
	if next.Spec.BMC == nil || old != nil && old.Spec.BMC != nil && *old.Spec.BMC == *next.Spec.BMC {
		return nil
	}
	b := next.Spec.BMC
	if b.Console && b.Protocol == "redfish" && trivet.RedfishConsoleRelease.Compare(c.tx.ClusterVersion()) > 0 {
		return &trivet.FieldError{Field: "spec.bmc.console", Problem: fmt.Sprintf("needs release %s on all heads for "+
			"protocol redfish: upgrade the others first (trivet head list)", trivet.RedfishConsoleRelease)}
	}
	var was *trivet.BMC
	if old != nil {
		was = old.Spec.BMC
	}
	if err := h.checkBMCSecret(c.tx, was, b); err != nil {
		return err
	}
	return h.checkOwnBMC(c.tx, old, next)
}

// checkOwnBMC refuses a BMC that is that of another machine, which a power command for this one would power off. Two
// machines that had the same before may keep it.
func (h *Handler) checkOwnBMC(tx *store.Tx, old, next *trivet.Machine) error {
	b := next.Spec.BMC
	_, same := b.Keys()
	for _, key := range same {
		for _, other := range h.Fleet.Machines.In(tx).ListBy(state.ByBMC, key) {
			if other.Name == next.Name || !other.Spec.BMC.SameAs(b) ||
				old != nil && old.Spec.BMC != nil && old.Spec.BMC.SameAs(other.Spec.BMC) {
				continue
			}
			return &trivet.Error{Op: "write", Kind: "Machine", Name: next.Name, Hint: hintOtherBMC(b, other),
				Err: inUse("spec.bmc.address %s is the BMC of machine %s, at %s", b.Address, other.Name,
					other.Spec.BMC.Address)}
		}
	}
	return nil
}

// hintOtherBMC says what to do about a BMC that another machine has.
func hintOtherBMC(b *trivet.BMC, other *trivet.Machine) string {
	hint := fmt.Sprintf("write the address of this machine's own BMC; if it is this one's, take it out of the other: "+
		"trivet patch machine %s '{\"spec\": {\"bmc\": null}}'", other.Name)
	_, system := b.Endpoint()
	_, otherSystem := other.Spec.BMC.Endpoint()
	if b.Protocol == "redfish" && other.Spec.BMC.Protocol == "redfish" && (system == "" || otherSystem == "") {
		hint += fmt.Sprintf("; of a BMC with several systems, write that of each: https://%s/redfish/v1/Systems/ID", b.Host())
	}
	return hint
}

// checkBMCSecret refuses a BMC whose secret does not exist, lacks a key, or may not be sent to its address. One that
// the BMC had before, which is was, may lack keys.
func (h *Handler) checkBMCSecret(tx *store.Tx, was, b *trivet.BMC) error {
	secret, err := h.Fleet.Secrets.In(tx).Get(trivet.Resolve("", b.Secret))
	if errors.Is(err, trivet.ErrNotFound) {
		return &trivet.FieldError{Field: "spec.bmc.secret", Problem: fmt.Sprintf(
			"names secret %q, which does not exist; an admin creates it, with the BMC's address in spec.addresses",
			b.Secret)}
	}
	if err != nil {
		return err
	}
	if was == nil || was.Secret != b.Secret {
		if err := needKeys("spec.bmc.secret", b.Secret, &secret.Spec); err != nil {
			return err
		}
	}
	if strings.HasPrefix(strings.ToLower(b.Address), "http://") && !secret.Spec.Insecure {
		return &trivet.FieldError{Field: "spec.bmc.address", Problem: fmt.Sprintf(
			"\"http://%[1]s\" has no TLS, so that anyone in between reads the password; write https://%[1]s, or an admin "+
				"sets spec.insecure of secret %[2]s", b.Host(), b.Secret)}
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

// machineRoutes are the operations on machines besides their records.
func (h *Handler) machineRoutes() {
	h.add(route{method: "POST", path: "/v1/machines/{name}/accept", verb: auth.Write, kind: "Machine",
		status:  http.StatusNoContent,
		summary: "Make a discovered or releasing machine available; return a quarantined one to its former state",
		serve: func(w http.ResponseWriter, r *http.Request, _ *caller) error {
			return done(w, h.Fleet.Accept(r.Context(), r.PathValue("name")))
		}})
	h.add(route{method: "POST", path: "/v1/machines/{name}/forget", verb: auth.Write, kind: "Machine",
		status:  http.StatusNoContent,
		summary: "Reset the reputation of a machine, as after a repair",
		serve: func(w http.ResponseWriter, r *http.Request, _ *caller) error {
			return done(w, h.Fleet.Forget(r.Context(), r.PathValue("name")))
		}})
	h.add(route{method: "GET", path: "/v1/models", verb: auth.Read, kind: "Machine",
		out:     reflect.TypeFor[[]trivet.Model](),
		summary: "What was learnt of the machines of each model, as this head knows it; the first entry is all machines",
		serve: func(w http.ResponseWriter, _ *http.Request, _ *caller) error {
			return respond(w, http.StatusOK, h.Fleet.Models())
		}})
	h.add(route{method: "POST", path: "/v1/machines/{name}/quarantine", verb: auth.Write, kind: "Machine",
		status:  http.StatusNoContent,
		summary: "Exclude a machine from placement; a run on it is cancelled",
		in:      reflect.TypeFor[trivet.QuarantineRequest](), serve: h.quarantine})
	h.add(route{method: "POST", path: "/v1/machines/{name}/release", verb: auth.Write, kind: "Machine",
		status:  http.StatusNoContent,
		summary: "Stop a machine and wipe its disks, or keep them; the provision that it serves is deleted",
		in:      reflect.TypeFor[trivet.ReleaseRequest](), serve: h.release})
	h.add(route{method: "POST", path: "/v1/machines/{name}/rename", verb: auth.Write, kind: "Machine",
		status:  http.StatusNoContent,
		summary: "Give a machine another name; it keeps its UID, its state and its addresses",
		in:      reflect.TypeFor[trivet.RenameRequest](), serve: h.rename})
	h.powerRoutes()
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

func (h *Handler) release(w http.ResponseWriter, r *http.Request, _ *caller) error {
	body, err := h.readBody(w, r, 4<<10)
	if err != nil {
		return err
	}
	var req trivet.ReleaseRequest
	if err := apitypes.DecodeStrict(body, &req); err != nil {
		return err
	}
	if err := req.Validate(); err != nil {
		return err
	}
	return done(w, h.Fleet.StartRelease(r.Context(), r.PathValue("name"), req))
}

func (h *Handler) rename(w http.ResponseWriter, r *http.Request, c *caller) error {
	body, err := h.readBody(w, r, 4<<10)
	if err != nil {
		return err
	}
	var req trivet.RenameRequest
	if err := apitypes.DecodeStrict(body, &req); err != nil {
		return err
	}
	return done(w, h.Fleet.Rename(r.Context(), r.PathValue("name"), req, c.account))
}

func done(w http.ResponseWriter, err error) error {
	if err == nil {
		w.WriteHeader(http.StatusNoContent)
	}
	return err
}
