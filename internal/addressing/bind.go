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
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
)

// A known machine keeps its address: its record is written once, and never renewed. The lease of an unknown
// machine, or of one with an address from the ranges for unknown machines, is recorded for twice its time, so that
// only each second renewal is a write, and no client has a longer lease than its record. A fixed address is
// assigned by the machine's own record; the address's record follows (deferred.go).

const (
	// minLease is the shortest lease that is acknowledged.
	minLease = time.Minute
	// discoveryLease bounds the leases that end: those of unknown machines. They are invented easily.
	discoveryLease = 10 * time.Minute
	// cutOffLease bounds what a head without a quorum acknowledges: the address may be another client's by now.
	cutOffLease = 2 * time.Minute
	// leaseGrace is how much later than a lease's end its address is taken: heads observe writes late.
	leaseGrace = time.Minute
)

// LeaseTime returns the time of a new lease of an address.
func (l *Leases) LeaseTime(r *Request, a netip.Addr) time.Duration {
	lease := r.Network.Lease
	if !r.owns(a) {
		lease = min(lease, discoveryLease)
	}
	if !l.writable() {
		lease = min(lease, cutOffLease)
	}
	return lease
}

// errLimited: too many unknown ports of one source got an address.
var errLimited = fmt.Errorf("too many new clients: %w", trivet.ErrUnavailable)

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
		return l.LeaseTime(r, a), nil
	}
	record, err := l.Addresses.GetShared(a.String())
	switch {
	case err == nil && record.Spec.MAC == r.MAC && record.Spec.Network == r.Network.Record.Name &&
		!record.Status.Declined:
		return l.renew(ctx, r, a, record)
	case !ipam.Fits(r.Network.Record, r.use(), a) || l.reserved(r, a):
		return 0, fmt.Errorf("%w: it is not free in the ranges of network %s", ErrRefused, r.Network.Record.Name)
	}
	if r.Machine == nil && !l.limits.allow(r.Network.Record.Name, r.Port, r.Network.Record.Spec.NewClientsOrDefault(), time.Now()) {
		return 0, errLimited
	}
	if err := l.waitAndWrite(ctx, r, a); err != nil {
		return 0, err
	}
	l.offered.remove(a, r.MAC)
	return l.LeaseTime(r, a), nil
}

// renew extends the lease of an address that the port has. It writes only what the record does not cover yet. A head
// without a quorum acknowledges no more than what is left of the lease as it observed it.
func (l *Leases) renew(ctx context.Context, r *Request, a netip.Addr, record *trivet.Address) (time.Duration, error) {
	lease := l.LeaseTime(r, a)
	if r.owns(a) {
		l.bindLater(r, a) // the machine may have been unknown
		return lease, nil
	}
	left, exact := l.ages.left(record)
	exact = exact && !record.Status.Released
	if exact && left >= lease && record.Spec.Machine == "" {
		return lease, nil
	}
	err := errNoQuorum
	if l.writable() {
		err = l.waitAndWrite(ctx, r, a)
	}
	switch {
	case err == nil:
		return lease, nil
	case exact && left >= minLease && !errors.Is(err, ErrRefused):
		return min(left, cutOffLease), nil
	}
	return 0, err
}

// writeTimeout bounds how long a client waits for the store. The client asks again.
const writeTimeout = 3 * time.Second

// waitAndWrite writes while the client waits.
func (l *Leases) waitAndWrite(ctx context.Context, r *Request, a netip.Addr) error {
	if !r.yield() {
		return errBusy
	}
	return l.write(ctx, r, a)
}

// write writes the record by which the port has the address. It fails with ErrRefused where another port has it. Copies
// of one request share the write.
func (l *Leases) write(ctx context.Context, r *Request, a netip.Addr) error {
	if faultinject.AddressTwice {
		return nil
	}
	_, err, _ := l.writes.Do(r.MAC+" "+a.String(), func() (any, error) { return nil, l.commit(ctx, r, a) })
	return err
}

// commit writes the record in one transaction, which it shares with those that other ports wait for.
func (l *Leases) commit(ctx context.Context, r *Request, a netip.Addr) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	heads := l.heads.Get()
	_, err := l.group.Update(ctx, func(tx *store.Tx) error {
		addresses := l.Addresses.In(tx)
		record, err := addresses.Get(a.String())
		switch {
		case errors.Is(err, trivet.ErrNotFound):
			record = &trivet.Address{Meta: trivet.Meta{Kind: "Address", Name: a.String()}}
		case err != nil:
			return err
		case record.Spec.MAC == r.MAC && record.Status.Declined && !r.fixed().IsValid():
			return fmt.Errorf("%w: another host was found to use it", ErrRefused)
		case record.Spec.MAC != r.MAC && !l.mayTake(tx, r, a, record):
			return fmt.Errorf("%w: it is leased to %s", ErrRefused, record.Spec.MAC)
		}
		if other := l.another(tx, r, a, record, heads); other != "" {
			return fmt.Errorf("%w: its machine has %s", ErrRefused, other)
		}
		r.assign(record, a)
		if err := l.nameOwner(tx, record); err != nil {
			return err
		}
		return addresses.Put(record)
	})
	l.observe(a.String())
	return err
}

// nameOwner sets the name that the machine of an address has now: this head may have read the machine before it was
// renamed. The record of the port is compared, which the renaming writes.
func (l *Leases) nameOwner(tx *store.Tx, record *trivet.Address) error {
	if record.Spec.Machine == "" {
		return nil
	}
	mac, err := l.MACs.In(tx).Get(record.Spec.MAC)
	switch {
	case errors.Is(err, trivet.ErrNotFound):
		return nil
	case err != nil:
		return err
	case mac.Spec.MachineUID == record.Spec.MachineUID:
		record.Spec.Machine = mac.Spec.Machine
	}
	return nil
}

// another returns the address that a port owns already and keeps, where it would get a further one: the head that
// offered this one did not know yet what another head assigned. The commit compares that.
func (l *Leases) another(tx *store.Tx, r *Request, a netip.Addr, record *trivet.Address,
	heads headAddresses) string {
	if record.Spec.MAC == r.MAC || !r.owns(a) || r.fixed() == a {
		return ""
	}
	for _, has := range l.Addresses.In(tx).ListBy(state.ByOwned, r.MAC) {
		other, ok := r.keeps(has)
		if ok && !l.isOtherHead(r, other, heads) && len(l.Machines.In(tx).ListBy(state.ByAddress, has.Name)) == 0 {
			return has.Name
		}
	}
	return ""
}

// mayTake reports whether a port may have the address of another: its lease has ended, or it is an unknown port's and
// was offered to a known machine because no other was free.
func (l *Leases) mayTake(tx *store.Tx, r *Request, a netip.Addr, record *trivet.Address) bool {
	if l.Expired(record) {
		return true
	}
	if r.Machine == nil || ipam.Kept(record) || record.Status.Declined || !l.offered.isTo(a, r.MAC, time.Now()) {
		return false
	}
	_, err := l.MACs.In(tx).Get(record.Spec.MAC)
	return errors.Is(err, trivet.ErrNotFound)
}

// lasting returns the status of a lease that ends.
func lasting(d time.Duration) trivet.AddressStatus {
	return trivet.AddressStatus{Lasts: trivet.Duration(d), Until: time.Now().Add(d).Truncate(time.Second)}
}

// assign fills in the record by which the port has the address.
func (r *Request) assign(record *trivet.Address, a netip.Addr) {
	next := trivet.AddressSpec{Network: r.Network.Record.Name, MAC: r.MAC}
	if record.Spec.MAC == r.MAC {
		next.Provision, next.ProvisionUID = record.Spec.Provision, record.Spec.ProvisionUID
	}
	record.Spec = next
	record.Status = trivet.AddressStatus{}
	if r.owns(a) {
		record.Spec.Machine, record.Spec.MachineUID = r.Machine.Name, r.Machine.UID
		record.Spec.Fixed = r.fixed() == a
	} else {
		record.Status = lasting(2 * min(r.Network.Lease, discoveryLease))
	}
}
