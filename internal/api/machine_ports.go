package api

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/ipam"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
)

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
			return &trivet.Error{Op: "write", Kind: "Machine", Name: next.Name, Hint: h.hintHolder(tx, holder, next.Name),
				Err: inUse("spec.nics[%d].mac %s belongs to machine %s", i, nic.MAC, holder.Spec.Machine)}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// inUse returns an ErrExists whose text is only what is in use, and by what.
func inUse(format string, args ...any) error { return taken(fmt.Sprintf(format, args...)) }

// taken is the text of an ErrExists about a part of a record: the record itself need not exist.
type taken string

func (t taken) Error() string { return string(t) }

// Is reports true for ErrExists.
func (t taken) Is(target error) bool { return target == trivet.ErrExists }

// hintHolder says what to do about a MAC that another machine has: that may be the machine itself, which was renamed.
func (h *Handler) hintHolder(tx *store.Tx, holder *trivet.MAC, name string) string {
	has := holder.Spec.Machine
	m, err := h.Fleet.Machines.In(tx).Get(has)
	if err == nil && slices.Contains(m.Status.FormerNames, name) {
		return fmt.Sprintf("machine %s was renamed to %s: write that name", name, has)
	}
	return fmt.Sprintf("trivet describe machine %s; rename it, delete it, or take the MAC out of it", has)
}

// checkAddresses refuses a fixed address that another machine has: heads acknowledge one without waiting for a record.
func (h *Handler) checkAddresses(tx *store.Tx, old, next *trivet.Machine) error {
	for i, nic := range next.Spec.NICs {
		if !nic.Address.IsValid() || old != nil && old.HasAddress(nic.Address) {
			continue
		}
		field := fmt.Sprintf("spec.nics[%d].address", i)
		if err := h.checkAddress(field, nic.Address); err != nil {
			return err
		}
		if err := h.checkServed(old, field, nic.Address); err != nil {
			return err
		}
		if err := h.checkUnique(tx, next, field, nic.Address); err != nil {
			return err
		}
		if err := h.checkLease(tx, next, field, nic.Address); err != nil {
			return err
		}
	}
	return h.checkInterfaces(tx, old, next)
}

// checkServed refuses a new address of a port that is in no network, where there are networks: DHCP would not assign
// it.
func (h *Handler) checkServed(old *trivet.Machine, field string, a netip.Addr) error {
	if !a.IsValid() || hasAddress(old, a) || h.networkWith(a) != nil || !h.hasNetworks() {
		return nil
	}
	return &trivet.FieldError{Field: field, Problem: fmt.Sprintf("%s is in no network (trivet get networks); "+
		"write one of a network, or apply first a Network whose spec.cidr contains it", a)}
}

// hasAddress reports whether a port of the machine had an address before the change.
func hasAddress(old *trivet.Machine, a netip.Addr) bool {
	return old != nil && slices.ContainsFunc(old.Spec.NICs, func(n trivet.NIC) bool { return n.Address == a })
}

// hasNetworks reports whether there is any network, as this head knows it.
func (h *Handler) hasNetworks() bool {
	for range h.Fleet.Networks.After("", 1) {
		return true
	}
	return false
}

// checkUnique refuses an address that is fixed for another machine.
func (h *Handler) checkUnique(tx *store.Tx, next *trivet.Machine, field string, a netip.Addr) error {
	for _, other := range h.Fleet.Machines.In(tx).ListBy(state.ByAddress, a.String()) {
		if other.Name == next.Name {
			continue
		}
		return &trivet.Error{Op: "write", Kind: "Machine", Name: next.Name,
			Hint: fmt.Sprintf("trivet describe machine %s; delete it, or take the address out of it", other.Name),
			Err:  inUse("%s %s belongs to machine %s", field, a, other.Name)}
	}
	return nil
}

// checkAddress refuses a fixed address that no machine of its network may have. Where another server leases addresses,
// the gateway and the servers may be machines. It goes by this head's copy: the transaction does not compare the
// networks.
func (h *Handler) checkAddress(field string, a netip.Addr) error {
	for _, p := range ipam.Enclosing(netip.PrefixFrom(a, a.BitLen())) {
		for _, n := range h.Fleet.Networks.SharedBy(state.ByCIDR, p.String()) {
			reserved := n
			if !n.Spec.Assigns() {
				reserved = &trivet.Network{Spec: trivet.NetworkSpec{CIDR: n.Spec.CIDR}}
			}
			if !ipam.Usable(reserved, a) {
				return &trivet.FieldError{Field: field, Problem: fmt.Sprintf("%s is the gateway or a server of network %s, or "+
					"an end of its subnet %s; write another one", a, n.Name, n.Spec.CIDR)}
			}
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
