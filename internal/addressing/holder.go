package addressing

import (
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/state"
)

// Holder returns the MAC of the port that has an address now, or whose interface has it; empty if none is known to.
func (l *Leases) Holder(a netip.Addr) (mac string) {
	if r := l.Leased(a); r != nil {
		return r.Spec.MAC
	}
	if m := first(l.Machines.SharedBy(state.ByAddress, a.String())); m != nil {
		return m.PortOf(a)
	}
	return ""
}

// Leased returns the record by which a port has an address now; nil if there is none.
func (l *Leases) Leased(a netip.Addr) *trivet.Address {
	r, err := l.Addresses.GetShared(a.String())
	if err != nil || r.Status.Declined || l.Expired(r) {
		return nil
	}
	return r
}

// CheckHolder refuses a host that is not known to be this port: its address must be the one that the port has, or one
// of the machine's other ports. machine is nil for an unknown port. The end of a lease does not matter as long as no
// other port has the address. Where another server assigns the addresses, heads know those that they heard ports
// request; where they heard none, any host of the network is taken for the port.
func (l *Leases) CheckHolder(mac string, machine *trivet.Machine, a netip.Addr) error {
	n := l.Network(a)
	if n == nil {
		return fmt.Errorf("%w: %s is in no network of this site", trivet.ErrForbidden, a)
	}
	record, err := l.Addresses.GetShared(a.String())
	switch {
	case machine != nil && machine.HasAddress(a) && l.Leased(a) == nil:
		return nil // its record follows
	case err == nil && !record.Status.Declined:
		if record.Spec.MAC == mac || machine != nil && machine.HasMAC(record.Spec.MAC) {
			return nil
		}
		return fmt.Errorf("%w: %s is the address of %s", trivet.ErrForbidden, a, record.Spec.MAC)
	case n.Record.Spec.Assigns() || l.isHead(a):
		return fmt.Errorf("%w: %s is not leased to %s", trivet.ErrForbidden, a, mac)
	}
	return l.heard.check(mac, a)
}

// Heard notes that a port requested an address from another server.
func (l *Leases) Heard(mac string, a netip.Addr) { l.heard.note(mac, a, time.Now()) }

// isHead reports whether an address is a head's, or the one that they share: a proxy on a head has it.
func (l *Leases) isHead(a netip.Addr) bool {
	_, head := l.heads.Get()[a]
	return head || a == l.Shared
}

// NetworkOf returns the network that a port has an address in; nil if it has none.
func (l *Leases) NetworkOf(mac string) *trivet.Network {
	for _, a := range l.Addresses.SharedBy(state.ByMAC, mac) {
		if n, err := l.Networks.GetShared(a.Spec.Network); err == nil {
			return n
		}
	}
	return nil
}

// checkFixed refuses a fixed address while another port has it.
func (l *Leases) checkFixed(r *Request, a netip.Addr) error {
	if record := l.Leased(a); record != nil && record.Spec.MAC != r.MAC {
		return fmt.Errorf("%w: the fixed address %s is leased to %s", trivet.ErrConflict, a, record.Spec.MAC)
	}
	return nil
}

// reserved reports whether an address of a range must not be assigned: it is fixed for a machine, or a head's.
func (l *Leases) reserved(r *Request, a netip.Addr) bool {
	return l.isOtherHead(r, a, l.heads.Get()) || a == r.Server ||
		first(l.Machines.SharedBy(state.ByAddress, a.String())) != nil
}

// Serves reports whether a host at an address may use the boot servers: it is in a network of this site, or on a head.
func (l *Leases) Serves(a netip.Addr) bool {
	return a.IsLoopback() || l.Network(a) != nil || l.isHead(a)
}

// headAddresses are those of all heads that serve machines, each with the UID of the machine that the head runs on;
// empty: it runs on none.
type headAddresses map[netip.Addr]string

// isOtherHead reports whether an address is the shared one, or that of a head on another host than the machine that
// asks. A machine that is a head gets its own address whenever it boots, also while there is no quorum without it.
func (l *Leases) isOtherHead(r *Request, a netip.Addr, heads headAddresses) bool {
	machine, isHead := heads[a]
	return a == l.Shared || isHead && (machine == "" || r.Machine == nil || r.Machine.UID != machine)
}

func newHeadAddresses(records []*trivet.Head) headAddresses {
	all := headAddresses{}
	for _, r := range records {
		if !r.Serves() {
			continue
		}
		for _, text := range slices.Concat(r.Status.API, r.Status.Boot) {
			u, err := url.Parse(text)
			if err != nil {
				continue
			}
			if a, err := netip.ParseAddr(u.Hostname()); err == nil {
				all[a] = r.Status.MachineUID
			}
		}
		for _, a := range r.Status.DHCP {
			all[a] = r.Status.MachineUID
		}
	}
	return all
}
