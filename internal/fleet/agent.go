package fleet

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/faultinject"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/workflow"
)

// Enrolled is the name that a machine gets which no record names.
func Enrolled(mac string) string { return "m-" + strings.ReplaceAll(mac, ":", "") }

// Hello spends a boot token, registers the agent's key and grants the machine's run, if there is one for it, under a new
// epoch. A hello that is sent again after a lost answer changes nothing. An unknown machine is enrolled.
func (f *Fleet) Hello(ctx context.Context, h *trivet.Hello, token auth.BootToken) (machine string, err error) {
	if h.MAC != token.MAC {
		return "", fmt.Errorf("hello of %s: %w: its boot token is for %s", h.MAC, trivet.ErrUnauthenticated, token.MAC)
	}
	machine = token.Machine
	if mac, err := f.MACs.Get(token.MAC); err == nil {
		machine = mac.Spec.Machine // known meanwhile, perhaps by another name
	} else if err := f.enrol(ctx, machine, h); err != nil {
		return "", err
	}
	return machine, f.onMachine(ctx, "hello", machine, func(c *change) error { return f.hello(c, h, token.Epoch) })
}

func (f *Fleet) hello(c *change, h *trivet.Hello, epoch int64) error {
	m := c.machine
	switch {
	case m.Status.AgentKey == h.Key && m.Status.BootID == h.BootID:
		return errUnchanged
	case m.Status.Epoch != epoch:
		return &trivet.Error{Op: "spend boot token", Err: fmt.Errorf("%w: it is of epoch %d; the machine's is %d",
			trivet.ErrFenced, epoch, m.Status.Epoch), Hint: "boot the machine again for a fresh one"}
	}
	m.Status.Epoch++
	m.Status.AgentKey, m.Status.BootID, m.Status.Inventory = h.Key, h.BootID, &h.Inventory
	if !f.grant(c) {
		c.tell("Hello", "an agent is up under epoch %d; there is no run for it", m.Status.Epoch)
	}
	return nil
}

// grant gives the run to the agent that has just been registered.
func (f *Fleet) grant(c *change) bool {
	if c.run == nil || !c.run.Grant(c.machine.Status.Epoch) {
		return false
	}
	c.machine.Status.State = trivet.MachineProvisioning
	c.dropIntent()
	return true
}

// Fetch grants the run to the idle agent of a machine that was claimed while it waited.
func (f *Fleet) Fetch(ctx context.Context, machine, key string) error {
	return f.onMachine(ctx, "fetch run", machine, func(c *change) error {
		if c.machine.Status.AgentKey != key {
			return fmt.Errorf("%w: another agent has the machine", trivet.ErrFenced)
		}
		if c.workflow == nil || c.workflow.Status.State != trivet.WorkflowBooting || c.workflow.Status.Epoch != 0 {
			return errUnchanged
		}
		c.machine.Status.Epoch++
		if !f.grant(c) {
			return errUnchanged
		}
		return nil
	})
}

// enrol writes the record of a machine that is seen for the first time, and holds its MAC for it.
func (f *Fleet) enrol(ctx context.Context, name string, h *trivet.Hello) error {
	err := f.update(ctx, func(tx *store.Tx) error {
		if _, err := f.MACs.In(tx).Get(h.MAC); !errors.Is(err, trivet.ErrNotFound) {
			return errors.Join(err, errUnchanged)
		}
		m := &trivet.Machine{
			Meta:   trivet.Meta{Kind: "Machine", Name: name},
			Spec:   trivet.MachineSpec{Arch: h.Inventory.Arch, NICs: []trivet.NIC{{MAC: h.MAC}}},
			Status: trivet.MachineStatus{State: trivet.MachineDiscovered},
		}
		if f.siteIn(tx).Accept {
			m.Status.State = trivet.MachineAvailable
		}
		mac := &trivet.MAC{Meta: trivet.Meta{Kind: "MAC", Name: h.MAC}, Spec: trivet.MACSpec{Machine: name}}
		if err := f.MACs.In(tx).Create(mac); err != nil {
			return err
		}
		c := &change{tx: tx, machine: m}
		c.tell("Enrolled", "an unknown machine enrolled itself: %s %s, serial %s", h.Inventory.Vendor, h.Inventory.Product, h.Inventory.Serial)
		if err := f.writeEvents(c); err != nil {
			return err
		}
		return f.Machines.In(tx).Create(m)
	})
	if err != nil {
		return &trivet.Error{Op: "enrol", Kind: "Machine", Name: name, Err: err}
	}
	return nil
}

// Report applies an agent's reports under its epoch; with none it says that the agent, once held for lost, is there.
func (f *Fleet) Report(ctx context.Context, s *trivet.Sync) error {
	return f.onMachine(ctx, "report", s.Machine, func(c *change) error {
		if c.machine.Status.Epoch != s.Epoch || c.machine.Status.BootID != s.BootID {
			return fmt.Errorf("%w: the agent has epoch %d, the machine %d", trivet.ErrFenced, s.Epoch, c.machine.Status.Epoch)
		}
		if c.run == nil || c.workflow.Status.Epoch != s.Epoch {
			return fmt.Errorf("%w: no run is granted under epoch %d", trivet.ErrFenced, s.Epoch)
		}
		if n := len(s.Reports); c.workflow.Status.State.Ended() && (n == 0 || s.Reports[n-1].Seq <= c.workflow.Status.Acked) {
			return errUnchanged
		}
		acked, back := c.workflow.Status.Acked, c.run.Heard()
		if err := c.run.Apply(s.Reports); err != nil {
			return err
		}
		if !back && acked == c.workflow.Status.Acked {
			return errUnchanged
		}
		return nil
	})
}

// Work is what the agent of a machine that was granted its run gets to know; nil when there is nothing for it.
func (f *Fleet) Work(m *trivet.Machine) *trivet.Run {
	w, err := f.Workflows.Get(m.Status.Workflow)
	if err != nil || w.Status.State != trivet.WorkflowRunning || w.Status.Epoch != m.Status.Epoch {
		return nil
	}
	run := workflow.Work(w)
	if faultinject.ActionTwice {
		run.Done = nil
	}
	run.Network = f.network(m)
	return run
}
