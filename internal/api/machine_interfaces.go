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

// checkInterfaces refuses an address of an interface that another machine has, or that does not fit its network.
func (h *Handler) checkInterfaces(tx *store.Tx, old, next *trivet.Machine) error {
	for i := range next.Spec.Interfaces {
		for j, a := range next.Spec.Interfaces[i].Addresses {
			if old != nil && slices.ContainsFunc(old.Spec.Interfaces, func(o trivet.Interface) bool {
				return slices.Contains(o.Addresses, a)
			}) {
				continue
			}
			field := fmt.Sprintf("spec.interfaces[%d].addresses[%d]", i, j)
			if err := h.checkInterface(tx, next, field, a); err != nil {
				return err
			}
		}
	}
	return nil
}

func (h *Handler) checkInterface(tx *store.Tx, next *trivet.Machine, field string, a netip.Prefix) error {
	if err := h.checkAddress(field, a.Addr()); err != nil {
		return err
	}
	if n := h.networkWith(a.Addr()); n != nil && n.Spec.CIDR != a.Masked() {
		return &trivet.FieldError{Field: field, Problem: fmt.Sprintf("%s is in network %s, which is %s; write %s/%d", a,
			n.Name, n.Spec.CIDR, a.Addr(), n.Spec.CIDR.Bits())}
	}
	if err := h.checkUnique(tx, next, field, a.Addr()); err != nil {
		return err
	}
	return h.checkLease(tx, next, field, a.Addr())
}

// checkLease refuses an address that another machine or client has from a range, or that is held for a provision. DHCP
// leases it to no other port from now on.
func (h *Handler) checkLease(tx *store.Tx, next *trivet.Machine, field string, a netip.Addr) error {
	record, err := h.Fleet.Addresses.In(tx).Get(a.String())
	switch {
	case errors.Is(err, trivet.ErrNotFound):
		return nil
	case err != nil:
		return err
	}
	spec, owner := &record.Spec, ""
	switch {
	case spec.Provision != "":
		owner = "held for provision " + trivet.ShortName(spec.Provision)
	case record.Status.Declined, spec.Machine != "" && spec.MachineUID == next.UID, next.HasMAC(spec.MAC):
		return nil
	case spec.Machine != "":
		owner = "leased to machine " + spec.Machine
	case !record.Status.Released && record.Status.Until.After(h.Now()):
		owner = "leased to the client with MAC " + spec.MAC
	default:
		return nil
	}
	return &trivet.Error{Op: "write", Kind: "Machine", Name: next.Name,
		Hint: "write another one, outside of the ranges of network " + record.Spec.Network,
		Err:  inUse("%s %s is %s", field, a, owner)}
}

// networkWith returns the network that an address is in, as this head knows it; nil if there is none.
func (h *Handler) networkWith(a netip.Addr) *trivet.Network {
	for _, p := range ipam.Enclosing(netip.PrefixFrom(a, a.BitLen())) {
		for _, n := range h.Fleet.Networks.SharedBy(state.ByCIDR, p.String()) {
			return n
		}
	}
	return nil
}
