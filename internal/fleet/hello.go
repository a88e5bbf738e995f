package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/workflow"
)

// Hello spends a boot token, registers the agent's key and grants the machine's run, if there is one, under a new
// epoch. A hello that is sent again after a lost response changes nothing. An unknown machine is enrolled. While the
// agent that holds the run is heard, another one must ask again: a machine that was reset has no such agent. So must
// those of a machine that says hello too often.
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
	if f.isNewHello(machine, h, token.Epoch) && !f.hellos.allow(machine, f.now()) {
		return "", &trivet.Error{Op: "hello", Kind: "Machine", Name: machine, Err: ErrTooOften}
	}
	err = f.onMachine(ctx, "hello", machine, func(t *transition) error { return f.hello(t, h, token.Epoch) })
	if errors.Is(err, trivet.ErrFenced) || errors.Is(err, errAgentAtWork) {
		err = errors.Join(err, f.warnOfHello(ctx, machine))
	}
	return machine, err
}

// isNewHello reports whether a hello registers an agent, as far as this head knows. Others, such as those of a host
// that has an old boot script, do not count among those of the machine.
func (f *Fleet) isNewHello(machine string, h *trivet.Hello, epoch int64) bool {
	m, err := f.Machines.GetShared(machine)
	if err != nil {
		return true
	}
	repeated, err := workflow.CheckHello(m, h, epoch)
	return err == nil && !repeated
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
	m.Status.AgentKey, m.Status.BootID, m.Status.Inventory = h.Key, h.BootID, t.inventory(h)
	m.Status.Power = "on"
	recordRelease(t, h)
	if err := f.succeeded(t, "Site", "Network", "Platform"); err != nil {
		return err
	}
	if err := f.provePlatform(t, h.Version); err != nil {
		return err
	}
	granted, err := t.grant()
	if err != nil || granted {
		return err
	}
	t.event(trivet.ReasonAgentIdle, "an agent is up under epoch %d; %s", m.Status.Epoch, t.idleBecause())
	t.clear("an agent is up")
	return nil
}

// inventory returns what the hello reports of the hardware, as all heads know it.
func (t *transition) inventory(h *trivet.Hello) *trivet.Inventory {
	inv := h.Inventory
	if t.tx.ClusterVersion().Compare(trivet.DiskHealthRelease) < 0 {
		inv.Disks = slices.Clone(inv.Disks)
		for i := range inv.Disks {
			inv.Disks[i].Health = nil
		}
	}
	return &inv
}

// provePlatform notes that the new agent of a platform has started on a machine: it is not taken back any more.
func (f *Fleet) provePlatform(t *transition, version string) error {
	name := t.site.PlatformOf(t.machine)
	if name == "" {
		return nil
	}
	p, err := f.Platforms.In(t.tx).Get(name)
	if errors.Is(err, trivet.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	u := p.Followed()
	if u == nil || u.Former == nil || !u.Proven.IsZero() || u.Initrd.Agent.Version != version {
		return nil
	}
	u.Proven = f.now().UTC()
	return f.Platforms.In(t.tx).Put(p)
}

// grant grants the run to the machine's agent, under the epoch that the machine has now.
func (t *transition) grant() (granted bool, err error) {
	if t.run == nil || !t.run.Grant(t.machine.Status.Epoch) {
		return false, nil
	}
	t.dropIntent()
	if !workflow.IsRelease(t.workflow) {
		t.machine.Status.HoldsData = "" // its provision names the machine
	}
	return true, workflow.Change(&t.machine.Status, workflow.Grant)
}

// GrantIdle grants the run to the machine's idle agent, which was not heard when the machine was claimed, or was
// declared lost before it had read its grant.
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
