package fleet

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/addressing"
	"github.com/trivet-project/trivet/internal/provision"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/workflow"
)

// The address of a machine that failed follows its provision to the next machine. The transaction that records that
// the BMC reports the machine off takes the address from it: no port has it then. The claim of the next machine assigns
// it to that one, which keeps its own for its installer until the run has succeeded. So no two machines have one
// address, and a machine that could not be powered off keeps its address.

// addressesMoveSince is the release whose heads know addresses that no machine has.
const addressesMoveSince trivet.Release = "0.3.1"

// leaving returns the address of a machine whose run failed, and why it cannot move to the next machine.
func (f *Fleet) leaving(t *transition) (address, kept string) {
	a := f.bootAddress(t.machine)
	if a == nil || addressesMoveSince.Compare(t.tx.ClusterVersion()) > 0 {
		return "", ""
	}
	switch {
	case a.Spec.Fixed:
		kept = fmt.Sprintf("spec.nics of machine %s fixes it", t.machine.Name)
	case t.machine.Spec.BMC == nil:
		kept = fmt.Sprintf("machine %s has no BMC that could report it off", t.machine.Name)
	case t.machine.Status.Intent == nil || t.machine.Status.Intent.Want != "off":
		kept = fmt.Sprintf("machine %s is not being powered off", t.machine.Name)
	}
	return a.Name, kept
}

// elsewhereSince is the release whose heads know machines that were withdrawn.
const elsewhereSince trivet.Release = "0.3.1"

// isElsewhere reports whether another machine may not share what is at fault for the failure of a run: a network or a
// platform. An image is the provision's own choice, and goes with it to every machine. Where an address has followed
// the provision to the machine, it is not left there.
func (f *Fleet) isElsewhere(t *transition) bool {
	kind := workflow.SharedAtFault(t.workflow.Status.Failure)
	if kind != "Network" && kind != "Platform" || elsewhereSince.Compare(t.tx.ClusterVersion()) > 0 {
		return false
	}
	a := f.bootAddress(t.machine)
	return a == nil || a.Spec.Provision == ""
}

// endPowerWait ends the wait of a provision until the machine is off, where it has one: the machine is off, or nothing
// powers it off any more.
func (f *Fleet) endPowerWait(t *transition) error {
	if t.workflow == nil {
		return nil
	}
	p, err := f.provisionOf(t)
	if p == nil || err != nil {
		return err
	}
	last := provision.Last(&p.Status)
	if last == nil || last.MachineUID != t.machine.UID || p.Status.WaitsFor != provision.PowerOf(t.machine.Name) {
		return nil
	}
	if last.AddressKept = fmt.Sprintf("its BMC did not report machine %s off", t.machine.Name); t.isOff {
		if last.AddressKept, err = f.detach(t, p, last); err != nil {
			return err
		}
	}
	return f.goOn(t.tx, p)
}

// goOn lets a provision whose last machine is decided about wait for the next one.
func (f *Fleet) goOn(tx *store.Tx, p *trivet.Provision) error {
	p.Status.WaitsFor, p.Status.Reason = "", "waits for another machine"
	return f.putProvision(tx, p)
}

// detach takes the address of a machine that is off from it. kept: why it does not.
func (f *Fleet) detach(t *transition, p *trivet.Provision, last *trivet.FormerMachine) (kept string, err error) {
	a, err := f.Addresses.In(t.tx).Get(last.Address)
	switch {
	case errors.Is(err, trivet.ErrNotFound):
		return "it was deleted", nil
	case err != nil:
		return "", err
	case !t.machine.HasMAC(a.Spec.MAC) || a.Spec.Fixed || a.Status.Declined:
		return fmt.Sprintf("it is not assigned to machine %s any more", t.machine.Name), nil
	}
	a.Spec = trivet.AddressSpec{Network: a.Spec.Network, Provision: p.ShortName(), ProvisionUID: p.UID}
	a.Status = trivet.AddressStatus{}
	return "", f.Addresses.In(t.tx).Put(a)
}

// powerWaitEnded reports whether nothing powers off the machine that a provision waits for, as far as this head knows:
// the machine is gone. All else is recorded by the machine's own transitions.
func (f *Fleet) powerWaitEnded(p *trivet.Provision) bool {
	last := provision.Last(&p.Status)
	if last == nil {
		return true
	}
	m, err := f.Machines.GetShared(last.Machine)
	return errors.Is(err, trivet.ErrNotFound) || err == nil && (m.UID != last.MachineUID ||
		m.Status.Intent == nil && m.Revision >= p.Revision)
}

// arrival is the address of a provision that no machine has, while the next machine is being claimed.
type arrival struct {
	record  *trivet.Address    // nil: there is none
	network *trivet.RunNetwork // nil: the record does not move to the machine
	kept    string             // why it does not
}

// arriving returns the address that moves to the machine with its provision.
func (f *Fleet) arriving(t *transition, p *trivet.Provision, proposed *addressing.Proposal) (in arrival, err error) {
	last := provision.Last(&p.Status)
	if last == nil || last.Address == "" || last.AddressKept != "" {
		return in, nil
	}
	a, err := f.Addresses.In(t.tx).Get(last.Address)
	switch {
	case errors.Is(err, trivet.ErrNotFound):
		in.kept = "it was deleted"
		return in, nil
	case err != nil:
		return in, err
	case a.Spec.Machine != "" || a.Spec.ProvisionUID != p.UID:
		in.kept = "it is assigned to another machine"
		return in, nil
	}
	in.record = a
	n, err := f.Networks.In(t.tx).Get(a.Spec.Network)
	if err != nil && !errors.Is(err, trivet.ErrNotFound) {
		return in, err
	}
	mac := f.portIn(t.machine, a.Spec.Network, proposed)
	if n == nil || mac == "" {
		in.kept = fmt.Sprintf("machine %s does not boot from network %s by an address that may change", t.machine.Name,
			a.Spec.Network)
		return in, nil
	}
	a.Spec.MAC, a.Spec.Machine, a.Spec.MachineUID = mac, t.machine.Name, t.machine.UID
	in.network = runNetwork(n, mac, a.Name)
	return in, nil
}

// arrive assigns the address to the claimed machine. One that does not move is free from now on.
func (f *Fleet) arrive(t *transition, in arrival) error {
	switch {
	case in.record == nil:
		return nil
	case in.network == nil:
		return f.Addresses.In(t.tx).Delete(in.record.Name)
	}
	return f.Addresses.In(t.tx).Put(in.record)
}

// portIn returns the MAC of the machine's boot port where that is in a network.
func (f *Fleet) portIn(m *trivet.Machine, network string, proposed *addressing.Proposal) (mac string) {
	if a := f.bootAddress(m); a != nil {
		if a.Spec.Network == network && !a.Spec.Fixed {
			return a.Spec.MAC
		}
		return ""
	}
	if proposed != nil && proposed.Network() == network {
		return m.Spec.NICs[0].MAC
	}
	return ""
}

// dropAddress deletes the address that waits for the next machine of a provision.
func (f *Fleet) dropAddress(tx *store.Tx, p *trivet.Provision) error {
	last := provision.Last(&p.Status)
	if last == nil || last.Address == "" {
		return nil
	}
	a, err := f.Addresses.In(tx).Get(last.Address)
	if errors.Is(err, trivet.ErrNotFound) || err == nil && (a.Spec.Machine != "" || a.Spec.ProvisionUID != p.UID) {
		return nil
	}
	if err != nil {
		return err
	}
	return f.Addresses.In(tx).Delete(a.Name)
}

// explainAddress records whether the claimed machine has the address of the one that failed before it.
func (t *transition) explainAddress(p *trivet.Provision, in arrival) {
	last := provision.Last(&p.Status)
	if last == nil || last.Address == "" {
		return
	}
	if in.kept != "" {
		last.AddressKept = in.kept
	}
	if in.network != nil {
		t.event(trivet.ReasonAddressMoved, "address %s moved here from %s, which its BMC reports off", last.Address,
			last.Machine)
		return
	}
	now := "no address that is known yet"
	if p.Status.Address != "" {
		now = p.Status.Address
	}
	t.event(trivet.ReasonAddressKept, "it does not get the address %s of %s but has %s: %s", last.Address, last.Machine,
		now, last.AddressKept)
	t.events[len(t.events)-1].Warning = true
}

// keepOne deletes the addresses that the boot port has beside the one that followed its provision: the installed system
// has that one.
func (f *Fleet) keepOne(t *transition) error {
	kept := f.bootAddress(t.machine)
	if kept == nil || kept.Spec.Provision == "" {
		return nil
	}
	for _, a := range f.AddressesOf(kept.Spec.MAC) {
		if a.Name == kept.Name || a.Spec.Network != kept.Spec.Network || a.Status.Declined {
			continue
		}
		now, err := f.Addresses.In(t.tx).Get(a.Name)
		if errors.Is(err, trivet.ErrNotFound) {
			continue
		}
		if err == nil && now.Spec.MAC == kept.Spec.MAC && !now.Spec.Fixed {
			err = f.Addresses.In(t.tx).Delete(a.Name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// powerOffFailed powers off a machine that failed, where it has a BMC.
func (f *Fleet) powerOffFailed(t *transition) {
	if t.machine.Spec.BMC != nil && t.machine.Status.Intent == nil {
		f.setIntent(t, "off")
	}
}

// plainAddress returns an address without the length of its prefix.
func plainAddress(n *trivet.RunNetwork) string {
	if n == nil {
		return ""
	}
	address, _, _ := strings.Cut(n.Address, "/")
	return address
}

// stopPowerWait lets a provision wait for a machine where the one that it waits for is gone.
func (f *Fleet) stopPowerWait(ctx context.Context, p *trivet.Provision) error {
	if !f.powerWaitEnded(p) {
		return nil
	}
	return f.update(ctx, func(tx *store.Tx) error {
		now, err := f.Provisions.In(tx).Get(p.FullName())
		if errors.Is(err, trivet.ErrNotFound) || err == nil && now.Revision != p.Revision {
			return errUnchanged
		}
		if err != nil {
			return err
		}
		if last := provision.Last(&now.Status); last != nil {
			last.AddressKept = fmt.Sprintf("machine %s was not seen off", last.Machine)
		}
		return f.goOn(tx, now)
	})
}
