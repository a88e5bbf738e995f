package addressing

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/faultinject"
	"github.com/trivet-project/trivet/internal/ipam"
	"github.com/trivet-project/trivet/internal/store"
)

// A known machine keeps its address: its record is written once, and never renewed. The lease of an unknown
// machine, or of one with an address from the ranges for unknown machines, is recorded for twice its time, so that
// only each second renewal is a write, and no client has a longer lease than its record. A fixed address is
// assigned by the machine's own record; the address's record follows (deferred.go).

// minLease is the shortest lease that is acknowledged.
const minLease = time.Minute

// ErrRefused: the port may not have the address, and must start over.
var ErrRefused = errors.New("the address is not available to this client")

// Bind assigns an address to a port, or renews its lease, and returns the lease's time. It fails with [ErrRefused]
// where the port may not have the address.
func (l *Leases) Bind(ctx context.Context, r *Request, a netip.Addr) (time.Duration, error) {
	if fixed := r.fixed(); fixed.IsValid() {
		if err := l.checkFixed(r, fixed); a != fixed || err != nil {
			return 0, fmt.Errorf("%w: the machine's address is %s", ErrRefused, fixed)
		}
		l.bindLater(r, a)
		return r.Network.Lease, nil
	}
	record, err := l.Addresses.GetShared(a.String())
	switch {
	case err == nil && record.Spec.MAC == r.MAC && record.Spec.Network == r.Network.Record.Name &&
		!record.Status.Declined:
		return l.renew(ctx, r, a, record)
	case !ipam.Fits(r.Network.Record, r.use(), a) || l.reserved(r, a):
		return 0, fmt.Errorf("%w: it is not free in the ranges of network %s", ErrRefused, r.Network.Record.Name)
	}
	r.yield()
	if err := l.write(ctx, r, a); err != nil {
		return 0, err
	}
	l.offered.remove(a, r.MAC)
	return r.Network.Lease, nil
}

// renew extends the lease of an address that the port has. It writes only what the record does not cover yet.
func (l *Leases) renew(ctx context.Context, r *Request, a netip.Addr, record *trivet.Address) (time.Duration, error) {
	if r.owns(a) {
		l.bindLater(r, a) // the machine may have been unknown
		return r.Network.Lease, nil
	}
	left := time.Until(record.Status.Until)
	if left >= r.Network.Lease && record.Spec.Machine == "" {
		return r.Network.Lease, nil
	}
	r.yield()
	err := l.write(ctx, r, a)
	switch {
	case err == nil:
		return r.Network.Lease, nil
	case left >= minLease && !errors.Is(err, ErrRefused):
		return left, nil
	}
	return 0, err
}

// writeTimeout bounds how long a client waits for the store. The client asks again.
const writeTimeout = 3 * time.Second

// write writes the record by which the port has the address, in one transaction. It fails with ErrRefused where
// another port has it.
func (l *Leases) write(ctx context.Context, r *Request, a netip.Addr) error {
	if faultinject.AddressTwice {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	_, err := l.Store.Update(ctx, func(tx *store.Tx) error {
		addresses := l.Addresses.In(tx)
		record, err := addresses.Get(a.String())
		switch {
		case errors.Is(err, trivet.ErrNotFound):
			record = &trivet.Address{Meta: trivet.Meta{Kind: "Address", Name: a.String()}}
		case err != nil:
			return err
		case record.Spec.MAC == r.MAC && record.Status.Declined && !r.fixed().IsValid():
			return fmt.Errorf("%w: another host was found to use it", ErrRefused)
		case record.Spec.MAC != r.MAC && !ipam.Expired(record, time.Now()):
			return fmt.Errorf("%w: it is leased to %s", ErrRefused, record.Spec.MAC)
		}
		r.assign(record, a)
		return addresses.Put(record)
	})
	return err
}

// assign fills in the record by which the port has the address.
func (r *Request) assign(record *trivet.Address, a netip.Addr) {
	record.Spec = trivet.AddressSpec{Network: r.Network.Record.Name, MAC: r.MAC}
	record.Status = trivet.AddressStatus{}
	if r.owns(a) {
		record.Spec.Machine, record.Spec.MachineUID = r.Machine.Name, r.Machine.UID
		record.Spec.Fixed = r.fixed() == a
	} else {
		record.Status.Until = time.Now().Add(2 * r.Network.Lease).Truncate(time.Second)
	}
}
