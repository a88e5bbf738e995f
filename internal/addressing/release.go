package addressing

import (
	"context"
	"net/netip"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/store"
)

// Decline records that the port found another host using its address: no port gets it for a while.
func (l *Leases) Decline(ctx context.Context, r *Request, a netip.Addr) {
	l.warn("another host uses the address of a machine", "mac", r.MAC, "machine", r.machineName(), "address", a,
		"network", r.Network.Record.Name)
	l.metrics.declined.Inc()
	l.change(ctx, r, a, func(record *trivet.Address) {
		record.Status = lasting(2 * r.Network.Lease)
		record.Status.Declined = true
	})
}

// Release ends the lease of an unknown machine. The record stays, so that the machine gets the same address again
// if it can.
func (l *Leases) Release(ctx context.Context, r *Request, a netip.Addr) {
	if r.Machine == nil {
		l.change(ctx, r, a, func(record *trivet.Address) { record.Status.Released = true })
	}
}

// change writes a change of an address, if it is the port's. A fixed address is not changed.
func (l *Leases) change(ctx context.Context, r *Request, a netip.Addr, apply func(*trivet.Address)) {
	own := func(record *trivet.Address, err error) bool {
		return err == nil && record.Spec.MAC == r.MAC && !record.Spec.Fixed
	}
	if !own(l.Addresses.GetShared(a.String())) {
		return
	}
	if !r.yield() {
		return // the lease ends by itself
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	_, err := l.Store.Update(ctx, func(tx *store.Tx) error {
		record, err := l.Addresses.In(tx).Get(a.String())
		if !own(record, err) {
			return err
		}
		apply(record)
		return l.Addresses.In(tx).Put(record)
	})
	l.observe(a.String())
	if err != nil {
		l.warn("the change of an address was not written", "mac", r.MAC, "address", a, "error", err)
	}
}
