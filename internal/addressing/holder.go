package addressing

import (
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/ipam"
	"github.com/trivet-project/trivet/internal/state"
)

// Holder returns the MAC of the port that has an address now; empty if none is known to.
func (l *Leases) Holder(a netip.Addr) (mac string) {
	if r := l.Leased(a); r != nil {
		return r.Spec.MAC
	}
	if m := first(l.Machines.SharedBy(state.ByAddress, a.String())); m != nil {
		i := slices.IndexFunc(m.Spec.NICs, func(n trivet.NIC) bool { return n.Address == a })
		return m.Spec.NICs[i].MAC
	}
	return ""
}

// Leased returns the record by which a port has an address now; nil if there is none.
func (l *Leases) Leased(a netip.Addr) *trivet.Address {
	r, err := l.Addresses.GetShared(a.String())
	if err != nil || r.Status.Declined || ipam.Expired(r, time.Now()) {
		return nil
	}
	return r
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
	_, head := l.heads.Get()[a]
	return head || a == r.Server || a == l.Shared || first(l.Machines.SharedBy(state.ByAddress, a.String())) != nil
}

// headAddresses returns the addresses of all heads that serve machines.
func headAddresses(records []*trivet.Head) map[netip.Addr]struct{} {
	all := map[netip.Addr]struct{}{}
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
				all[a] = struct{}{}
			}
		}
		for _, a := range r.Status.DHCP {
			all[a] = struct{}{}
		}
	}
	return all
}
