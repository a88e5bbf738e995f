package netboot

import (
	"net/netip"
	"slices"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/fleet"
	"github.com/trivet-project/trivet/internal/ipam"
	"github.com/trivet-project/trivet/internal/state"
)

// host is what this head knows of a port that boots. Its records are the local copy's own: they are never changed.
type host struct {
	mac      string
	machine  *trivet.Machine  // nil: unknown
	workflow *trivet.Workflow // nil: none
	address  netip.Addr       // the one that the port was known by, if it was
}

// host looks up a port by its canonical MAC.
func (d *Door) host(mac string) host {
	h := host{mac: mac}
	if h.machine = first(d.Machines.SharedBy(state.ByMAC, mac)); h.machine == nil || h.machine.Status.Workflow == "" {
		return h
	}
	if w, err := d.Workflows.GetShared(h.machine.Status.Workflow); err == nil {
		h.workflow = w
	}
	return h
}

// nic is the machine's port; nil where it is unknown.
func (h host) nic() *trivet.NIC {
	if h.machine == nil {
		return nil
	}
	for i := range h.machine.Spec.NICs {
		if h.machine.Spec.NICs[i].MAC == h.mac {
			return &h.machine.Spec.NICs[i]
		}
	}
	return nil
}

// name is the machine's, or the one that it will enrol under.
func (h host) name() string {
	if h.machine != nil {
		return h.machine.Name
	}
	return fleet.Enrolled(h.mac)
}

// place is a port on a network of ours.
type place struct {
	host
	network *network
}

// fixed is the address that the operator gave the port, if it is one of this network.
func (p *place) fixed() netip.Addr {
	if nic := p.nic(); nic != nil && ipam.Assignable(p.network.record, nic.Address) {
		return nic.Address
	}
	return netip.Addr{}
}

// owns says whether an address is one that the port may keep: its fixed one, or one for known machines.
func (p *place) owns(a netip.Addr) bool {
	return p.machine != nil && (p.fixed() == a || ipam.Fits(p.network.record, ipam.Known, a))
}

// macAt is the port that has an address now; empty if none is known to.
func (d *Door) macAt(a netip.Addr) string {
	if r, err := d.Addresses.GetShared(a.String()); err == nil && d.holds(r) {
		return r.Spec.MAC
	}
	if m := first(d.Machines.SharedBy(state.ByAddress, a.String())); m != nil {
		i := slices.IndexFunc(m.Spec.NICs, func(n trivet.NIC) bool { return n.Address == a })
		return m.Spec.NICs[i].MAC
	}
	return ""
}

// networkOf is the network that a port boots from: of who asks for it, else the one that it has an address in.
func (d *Door) networkOf(h host, peer netip.Addr) *trivet.Network {
	if n := d.networks.of(peer); n != nil {
		return n.record
	}
	for _, a := range d.Addresses.SharedBy(state.ByMAC, h.mac) {
		if n, err := d.Networks.GetShared(a.Spec.Network); err == nil {
			return n
		}
	}
	return nil
}

// first is the first of what there is; nil if there is nothing.
func first[T any](all []*T) *T {
	for _, v := range all {
		return v
	}
	return nil
}
