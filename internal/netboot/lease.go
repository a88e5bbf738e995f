package netboot

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

// How addresses are held. A machine's address is its own as long as there is the machine: one record, written once, and
// nothing to renew. A stranger's, or a machine's from the ranges for strangers, is promised for twice its lease, so that a
// record is written every second lease only, and no acknowledgement promises more than the record does. A fixed address is
// the machine's by the machine's own record; the address's record follows (keep.go).

// minLease is the shortest promise worth giving.
const minLease = time.Minute

// errRefused: the client may not have the address, and shall begin anew.
var errRefused = errors.New("not your address")

// grant decides on the address that a client asks for, and for how long it may have it. It fails with errRefused where
// the client shall begin anew.
func (d *Door) grant(ctx context.Context, c *client, a netip.Addr) (time.Duration, error) {
	if fixed := c.fixed(); fixed.IsValid() {
		if err := d.checkFixed(c, fixed); a != fixed || err != nil {
			return 0, fmt.Errorf("%w: the machine's is %s", errRefused, fixed)
		}
		d.keep(&c.place, a)
		return c.network.lease, nil
	}
	r, err := d.Addresses.GetShared(a.String())
	switch {
	case err == nil && r.Spec.MAC == c.mac && r.Spec.Network == c.network.record.Name && !r.Status.Declined:
		return d.renew(ctx, c, a, r)
	case !ipam.Fits(c.network.record, c.decision.Use, a) || d.reserved(c, a):
		return 0, fmt.Errorf("%w: not free in this network's ranges", errRefused)
	}
	c.Yield()
	if err := d.take(ctx, &c.place, a); err != nil {
		return 0, err
	}
	d.offers.done(a, c.mac)
	return c.network.lease, nil
}

// renew gives more time on an address that the port has. It writes only what the record does not promise yet.
func (d *Door) renew(ctx context.Context, c *client, a netip.Addr, r *trivet.Address) (time.Duration, error) {
	if c.owns(a) {
		d.keep(&c.place, a) // it may have been a stranger's
		return c.network.lease, nil
	}
	left := r.Status.Until.Sub(d.now())
	if left >= c.network.lease && r.Spec.Machine == "" {
		return c.network.lease, nil
	}
	c.Yield()
	err := d.take(ctx, &c.place, a)
	switch {
	case err == nil:
		return c.network.lease, nil
	case left >= minLease && !errors.Is(err, errRefused):
		return left, nil
	}
	return 0, err
}

// writeTimeout bounds the wait of a packet for the store. The client asks again.
const writeTimeout = 3 * time.Second

// take writes the address's record for the port, or its promise anew, in one transaction. It fails with errRefused where
// somebody else has it.
func (d *Door) take(ctx context.Context, p *place, a netip.Addr) error {
	if faultinject.AddressTwice {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	_, err := d.Store.Update(ctx, func(tx *store.Tx) error {
		addresses := d.Addresses.In(tx)
		r, err := addresses.Get(a.String())
		switch {
		case errors.Is(err, trivet.ErrNotFound):
			r = &trivet.Address{Meta: trivet.Meta{Kind: "Address", Name: a.String()}}
		case err != nil:
			return err
		case r.Spec.MAC == p.mac && r.Status.Declined && !p.fixed().IsValid():
			return fmt.Errorf("%w: somebody else was found to use it", errRefused)
		case r.Spec.MAC != p.mac && !ipam.Expired(r, d.now()):
			return fmt.Errorf("%w: %s has it", errRefused, r.Spec.MAC)
		}
		r.Spec = trivet.AddressSpec{Network: p.network.record.Name, MAC: p.mac}
		r.Status = trivet.AddressStatus{}
		if p.owns(a) {
			r.Spec.Machine, r.Spec.Fixed = p.machine.Name, p.fixed() == a
		} else {
			r.Status.Until = d.now().Add(2 * p.network.lease).Truncate(time.Second)
		}
		return addresses.Put(r)
	})
	return err
}

// decline takes note that the machine found somebody else using the address: nobody gets it for a while.
func (d *Door) decline(ctx context.Context, c *client) {
	a := c.RequestedIP()
	d.warn("dhcp: a machine found its address in use by somebody else", "mac", c.mac, "machine", c.name(), "address", a,
		"network", c.network.record.Name)
	d.metrics.declined.Inc()
	d.change(ctx, c, a, func(r *trivet.Address) {
		r.Status.Declined, r.Status.Until = true, d.now().Add(2*c.network.lease).Truncate(time.Second)
	})
}

// release ends a stranger's promise. The record stays, so that the machine gets the same address again if it can.
func (d *Door) release(ctx context.Context, c *client) {
	if c.machine == nil {
		d.change(ctx, c, c.ClientIP(), func(r *trivet.Address) { r.Status.Until = d.now().Truncate(time.Second) })
	}
}

// change writes a change of the port's own address, if it is that. A fixed address is not changed.
func (d *Door) change(ctx context.Context, c *client, a netip.Addr, how func(*trivet.Address)) {
	mine := func(r *trivet.Address, err error) bool { return err == nil && r.Spec.MAC == c.mac && !r.Spec.Fixed }
	if !mine(d.Addresses.GetShared(a.String())) {
		return
	}
	c.Yield()
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	_, err := d.Store.Update(ctx, func(tx *store.Tx) error {
		r, err := d.Addresses.In(tx).Get(a.String())
		if !mine(r, err) {
			return err
		}
		how(r)
		return d.Addresses.In(tx).Put(r)
	})
	if err != nil {
		d.warn("dhcp: a change of an address was not written", "mac", c.mac, "address", a, "error", err)
	}
}

// holds says whether a record of an address gives it to somebody now.
func (d *Door) holds(r *trivet.Address) bool { return !r.Status.Declined && !ipam.Expired(r, d.now()) }

// checkFixed refuses a fixed address while somebody else holds it.
func (d *Door) checkFixed(c *client, a netip.Addr) error {
	r, err := d.Addresses.GetShared(a.String())
	if err == nil && r.Spec.MAC != c.mac && d.holds(r) {
		return fmt.Errorf("%w: the fixed address %s is leased to %s", trivet.ErrConflict, a, r.Spec.MAC)
	}
	return nil
}

// reserved says whether an address is kept from those that a range gives: a machine's fixed one, or ours.
func (d *Door) reserved(c *client, a netip.Addr) bool {
	_, ours := d.heads.table().ours[a]
	return ours || a == c.Local || a == d.VIP.Addr() || first(d.Machines.SharedBy(state.ByAddress, a.String())) != nil
}

// had is the address that a record already gives the port in this network.
func (d *Door) had(c *client) (netip.Addr, bool) {
	for _, r := range d.Addresses.SharedBy(state.ByMAC, c.mac) {
		if r.Spec.Network != c.network.record.Name || r.Status.Declined {
			continue
		}
		a, err := netip.ParseAddr(r.Name)
		if err == nil && ipam.Fits(c.network.record, c.decision.Use, a) && !d.reserved(c, a) {
			return a, true
		}
	}
	return netip.Addr{}, false
}
