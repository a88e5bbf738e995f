package fleet

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/workflow"
)

// EnrolledName returns the name of a machine that enrols itself.
func EnrolledName(mac string) string { return "m-" + strings.ReplaceAll(mac, ":", "") }

// Hello spends a boot token, registers the agent's key and grants the machine's run, if there is one, under a new
// epoch. A hello that is sent again after a lost response changes nothing. An unknown machine is enrolled. While the
// agent that holds the run is heard, another one must ask again: a machine that was reset has no such agent.
func (f *Fleet) Hello(ctx context.Context, h *trivet.Hello, token auth.BootToken) (machine string, err error) {
	if h.MAC != token.MAC {
		return "", fmt.Errorf("hello of %s: %w: its boot token is for %s", h.MAC, trivet.ErrUnauthenticated, token.MAC)
	}
	machine = token.Machine
	if mac, err := f.MACs.Get(token.MAC); err == nil {
		machine = mac.Spec.Machine // it has a record meanwhile, perhaps of another name
	} else if err := f.enrol(ctx, machine, h); err != nil {
		return "", err
	}
	err = f.onMachine(ctx, "hello", machine, func(t *transition) error { return f.hello(t, h, token.Epoch) })
	if errors.Is(err, trivet.ErrFenced) || errors.Is(err, errAgentAtWork) {
		err = errors.Join(err, f.warnOfHello(ctx, machine))
	}
	return machine, err
}

func (f *Fleet) hello(t *transition, h *trivet.Hello, epoch int64) error {
	m := t.machine
	repeated, err := workflow.CheckHello(m, h, epoch)
	if err != nil {
		return err
	}
	if repeated {
		return errUnchanged
	}
	if f.isAgentAtWork(t) {
		return errAgentAtWork
	}
	m.Status.Epoch++
	m.Status.AgentKey, m.Status.BootID, m.Status.Inventory = h.Key, h.BootID, &h.Inventory
	m.Status.Power = "on"
	granted, err := t.grant()
	if err != nil || granted {
		return err
	}
	t.event(trivet.ReasonAgentIdle, "an agent is up under epoch %d; there is no run for it", m.Status.Epoch)
	t.clear("an agent is up")
	return nil
}

// grant grants the run to the agent that has just been registered.
func (t *transition) grant() (granted bool, err error) {
	if t.run == nil || !t.run.Grant(t.machine.Status.Epoch) {
		return false, nil
	}
	t.dropIntent()
	return true, workflow.Change(&t.machine.Status, workflow.Grant)
}

// GrantIdle grants the run to the idle agent of a machine that was claimed while the agent waited.
func (f *Fleet) GrantIdle(ctx context.Context, machine, key string) error {
	return f.onMachine(ctx, "grant run", machine, func(t *transition) error {
		if err := workflow.CheckKey(t.machine, key); err != nil {
			return err
		}
		if !workflow.AwaitsAgent(t.workflow) {
			return errUnchanged
		}
		t.machine.Status.Epoch++
		granted, err := t.grant()
		if err == nil && !granted {
			return errUnchanged
		}
		return err
	})
}

// enrol creates the records of a machine that was unknown, and of its MAC.
func (f *Fleet) enrol(ctx context.Context, name string, h *trivet.Hello) error {
	err := f.update(ctx, func(tx *store.Tx) error {
		if _, err := f.MACs.In(tx).Get(h.MAC); !errors.Is(err, trivet.ErrNotFound) {
			return errors.Join(err, errUnchanged)
		}
		m := newMachine(name, h, f.siteIn(tx).Accept)
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
	})
	if err != nil {
		return &trivet.Error{Op: "enrol", Kind: "Machine", Name: name, Err: err}
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
