package netboot

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/faultinject"
	"github.com/trivet-project/trivet/internal/ipam"
)

// errNoQuorum: another head may be able to give an address.
var errNoQuorum = fmt.Errorf("no address is given anew without a quorum: %w", trivet.ErrUnavailable)

// choose finds the address to offer: the port's fixed one, the one that it has or had, else a free one. An offer is not
// written down; whoever takes it gets a record, or is refused and begins anew.
func (d *Door) choose(c *client) (netip.Addr, error) {
	if fixed := c.fixed(); fixed.IsValid() {
		return fixed, d.checkFixed(c, fixed)
	}
	if a, ok := d.had(c); ok {
		return a, nil
	}
	if !d.writable() {
		return netip.Addr{}, errNoQuorum
	}
	now := d.now()
	request := ipam.Request{Network: c.network.record, Use: c.decision.Use, MAC: c.mac, Hint: c.RequestedIP()}
	if faultinject.AddressTwice { // the machines' hashes keep them apart as well
		request.MAC = ""
	}
	for {
		if c.network.isFull(request.Use, now) {
			return netip.Addr{}, ipam.ErrFull
		}
		a, err := ipam.Pick(request, func(a netip.Addr) bool { return d.taken(c, a, now) })
		if errors.Is(err, ipam.ErrFull) {
			return d.reclaim(c, now, err)
		}
		if err != nil || d.offers.claim(a, c.mac, now) {
			return a, err
		}
	}
}

// taken says whether somebody else has an address, must have it, or was just offered it.
func (d *Door) taken(c *client, a netip.Addr, now time.Time) bool {
	if r, err := d.Addresses.GetShared(a.String()); err == nil && (r.Spec.MAC != c.mac || r.Status.Declined) {
		return true
	}
	return d.reserved(c, a) || d.offers.toOther(a, c.mac, now)
}

// reclaim offers the address whose promise ended first, when all are taken. It looks through all of them, so a network
// where that was in vain is let alone for a while.
func (d *Door) reclaim(c *client, now time.Time, full error) (netip.Addr, error) {
	c.Yield()
	r := ipam.Reclaim(c.network.record, c.decision.Use, slices.Collect(d.Addresses.AllShared()), now)
	if r == nil {
		c.network.setFull(c.decision.Use, now)
		return netip.Addr{}, full
	}
	a, err := netip.ParseAddr(r.Name)
	if err == nil && !d.offers.claim(a, c.mac, now) {
		err = full // somebody was quicker; the client asks again
	}
	return a, err
}
