package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
)

// Machines enrol themselves without a credential, so that the number of those that no one has accepted is bounded, and
// so is their rate. Where there are too many, the oldest one that is silent is forgotten: it enrols again when it
// boots.

const (
	enrolRate, enrolBurst = 5, 256 // per second, from one network to one head
	// forgetAfter is how long the agent of a machine must be silent until the machine may be forgotten.
	forgetAfter = 2 * time.Minute
)

var (
	errEnrolRate = fmt.Errorf("%w: too many machines enrol at once; ask again", trivet.ErrUnavailable)
	errEnrolFull = fmt.Errorf("%w: too many machines wait for 'trivet accept'", trivet.ErrUnavailable)
)

// EnrolledName returns the name of a machine that enrols itself.
func EnrolledName(mac string) string { return "m-" + strings.ReplaceAll(mac, ":", "") }

// enrol creates the records of a machine that was unknown, and of its MAC.
func (f *Fleet) enrol(ctx context.Context, name string, h *trivet.Hello) error {
	err := errEnrolRate
	if f.enrolments.allow(f.networkOf(h.MAC), f.now()) {
		err = f.update(ctx, func(tx *store.Tx) error { return f.enrolIn(tx, name, h) })
	}
	if err != nil {
		return &trivet.Error{Op: "enrol", Kind: "Machine", Name: name, Err: err}
	}
	return nil
}

func (f *Fleet) enrolIn(tx *store.Tx, name string, h *trivet.Hello) error {
	if _, err := f.MACs.In(tx).Get(h.MAC); !errors.Is(err, trivet.ErrNotFound) {
		return errors.Join(err, errUnchanged)
	}
	if err := f.CheckNewName(tx, name); err != nil {
		return err
	}
	site := f.siteIn(tx)
	if err := f.makeRoom(tx, site.DiscoveredOrDefault()); err != nil {
		return err
	}
	m := newMachine(name, h, site.Accept)
	if err := f.Machines.In(tx).Create(m); err != nil { // it gets its UID
		return err
	}
	mac := &trivet.MAC{Meta: trivet.Meta{Kind: "MAC", Name: h.MAC},
		Spec: trivet.MACSpec{Machine: name, MachineUID: m.UID}}
	if err := f.MACs.In(tx).Create(mac); err != nil {
		return err
	}
	t := &transition{tx: tx, machine: m}
	t.event(trivet.ReasonEnrolled, "an unknown machine enrolled itself: %s %s, serial %s",
		h.Inventory.Vendor, h.Inventory.Product, h.Inventory.Serial)
	if err := f.saveEvents(t); err != nil {
		return err
	}
	return f.Machines.In(tx).Put(m)
}

// networkOf returns the network that a port has an address in; empty if it has none.
func (f *Fleet) networkOf(mac string) string {
	for _, a := range f.Addresses.SharedBy(state.ByMAC, mac) {
		return a.Spec.Network
	}
	return ""
}

// makeRoom forgets a machine if there are as many as may wait to be accepted.
func (f *Fleet) makeRoom(tx *store.Tx, most int) error {
	waiting := f.Machines.In(tx).ListBy(state.ByDiscovered, string(trivet.MachineDiscovered))
	if len(waiting) < most {
		return nil
	}
	slices.SortFunc(waiting, func(a, b *trivet.Machine) int { return a.Created.Compare(b.Created) })
	for _, old := range waiting {
		if f.AgentSilence != nil && f.AgentSilence(old.Name, old.Status.Epoch) < forgetAfter {
			continue
		}
		m, err := f.Machines.In(tx).Get(old.Name)
		if err != nil || m.Status.State != trivet.MachineDiscovered || m.Status.Workflow != "" {
			continue // it was accepted or deleted meanwhile
		}
		return f.forget(tx, m)
	}
	return errEnrolFull
}

// forget deletes a machine that was never accepted, its MACs, so that it can enrol again, and its events. The sweep of
// leases deletes its addresses.
func (f *Fleet) forget(tx *store.Tx, m *trivet.Machine) error {
	errs := []error{f.Machines.In(tx).Delete(m.Name)}
	for _, nic := range m.Spec.NICs {
		errs = append(errs, f.MACs.In(tx).Delete(nic.MAC))
	}
	errs = append(errs, f.Events.In(tx).Drop(trivet.EventPrefix("machine/"+m.Name, m.UID)))
	for _, err := range errs {
		if err != nil && !errors.Is(err, trivet.ErrNotFound) {
			return err
		}
	}
	return nil
}

func newMachine(name string, h *trivet.Hello, accept bool) *trivet.Machine {
	m := &trivet.Machine{
		Meta:   trivet.Meta{Kind: "Machine", Name: name},
		Spec:   trivet.MachineSpec{Arch: h.Inventory.Arch, NICs: []trivet.NIC{{MAC: h.MAC}}},
		Status: trivet.MachineStatus{State: trivet.MachineDiscovered},
	}
	if accept {
		m.Status.State = trivet.MachineAvailable
	}
	return m
}
