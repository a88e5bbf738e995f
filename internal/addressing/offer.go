package addressing

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/faultinject"
	"github.com/trivet-project/trivet/internal/ipam"
	"github.com/trivet-project/trivet/internal/state"
)

// errNoQuorum: another head may be able to assign an address.
var errNoQuorum = fmt.Errorf("no new address is assigned without a quorum: %w", trivet.ErrUnavailable)

// Offer returns an address for the port: its fixed one, the one that it has or had, else a free one. Nothing is
// written: [Leases.Bind] decides who gets the address.
func (l *Leases) Offer(r *Request) (netip.Addr, error) {
	if fixed := r.fixed(); fixed.IsValid() {
		return fixed, l.checkFixed(r, fixed)
	}
	if a, ok := l.previous(r); ok {
		return a, nil
	}
	if !l.writable() {
		return netip.Addr{}, errNoQuorum
	}
	now := time.Now()
	request := ipam.Request{Network: r.Network.Record, Use: r.use(), MAC: r.MAC, Hint: r.Hint}
	if faultinject.AddressTwice { // the MACs' hashes keep the ports apart as well
		request.MAC = ""
	}
	for {
		if r.Network.isFull(request.Use, now) {
			return netip.Addr{}, ipam.ErrFull
		}
		a, err := ipam.Pick(request, func(a netip.Addr) bool { return l.taken(r, a, now) })
		if errors.Is(err, ipam.ErrFull) {
			return l.reclaim(r, now, err)
		}
		if err != nil || l.note(r, a, now) {
			return a, err
		}
	}
}

// note notes an offer to the port; it is false if the address was offered to another port meanwhile.
func (l *Leases) note(r *Request, a netip.Addr, now time.Time) bool {
	return r.predict || l.offered.add(a, r.MAC, r.Machine != nil, now)
}

// Offered notes that another head offered an address to a port, so that this one offers it to no other.
func (l *Leases) Offered(r *Request, a netip.Addr) {
	l.offered.add(a, r.MAC, r.Machine != nil, time.Now())
}

// Withdraw forgets that an address was offered to a port: the port chose another.
func (l *Leases) Withdraw(a netip.Addr, mac string) { l.offered.remove(a, mac) }

// previous returns the address that a record already assigns to the port in this network.
func (l *Leases) previous(r *Request) (netip.Addr, bool) {
	for _, record := range l.AddressesOf(r.MAC) {
		if a, ok := r.keeps(record); ok && !l.reserved(r, a) {
			return a, true
		}
	}
	return netip.Addr{}, false
}

// keeps returns the address of a record of the port. It is false where the port may not have it in this network any
// more, or where it is this head's own.
func (r *Request) keeps(record *trivet.Address) (a netip.Addr, ok bool) {
	a, err := netip.ParseAddr(record.Name)
	return a, err == nil && record.Spec.Network == r.Network.Record.Name && !record.Status.Declined && a != r.Server &&
		ipam.Fits(r.Network.Record, r.use(), a)
}

// taken reports whether another port has an address or was just offered it, or whether it is reserved.
func (l *Leases) taken(r *Request, a netip.Addr, now time.Time) bool {
	record, err := l.Addresses.GetShared(a.String())
	if err == nil && (record.Spec.MAC != r.MAC || record.Status.Declined) {
		return true
	}
	return l.reserved(r, a) || l.offered.toOther(a, r.MAC, r.Machine != nil, now)
}

// reclaim offers the address whose lease ended first, when all are taken; to a known machine that of an unknown port
// if none has ended. It searches all of them, so that a network where it found none is not searched again for a while.
func (l *Leases) reclaim(r *Request, now time.Time, full error) (netip.Addr, error) {
	if !r.yield() {
		return netip.Addr{}, errBusy
	}
	record := ipam.Reclaim(r.Network.Record, r.use(), l.Addresses.SharedBy(state.ByNetwork, r.Network.Record.Name),
		l.overdue(r))
	if record == nil {
		if !r.predict {
			r.Network.setFull(r.use(), now)
		}
		return netip.Addr{}, full
	}
	a, err := netip.ParseAddr(record.Name)
	if err == nil && !l.note(r, a, now) {
		err = full // it was offered to another port meanwhile; the client asks again
	}
	return a, err
}

// overdue returns by how much the leases of other ports may be taken by this one.
func (l *Leases) overdue(r *Request) func(*trivet.Address) time.Duration {
	return func(record *trivet.Address) time.Duration {
		left, _ := l.ages.left(record)
		switch {
		case l.Expired(record):
			return maxOverdue - left // before any that has not ended
		case r.Machine == nil || record.Status.Declined || first(l.Machines.SharedBy(state.ByMAC, record.Spec.MAC)) != nil:
			return -1
		}
		return maxOverdue - min(left, maxOverdue)
	}
}

// maxOverdue is more than any lease lasts.
const maxOverdue = 100 * 365 * 24 * time.Hour
