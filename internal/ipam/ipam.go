// Package ipam chooses addresses. It is pure: what is taken it is told, and writing the choice down is the
// caller's.
package ipam

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/trivet-project/trivet"
)

// ErrFull says that every address of the ranges is taken.
var ErrFull = errors.New("no free address")

// The uses of a range besides "", which serves all (see [trivet.Range]).
const (
	Known     = "known"
	Discovery = "discovery"
)

// Request is what is known of the port that needs an address.
type Request struct {
	Network *trivet.Network
	Use     string // Known or Discovery
	MAC     string // any text that is the port's own
	// Hint is the address that the port had before, or would like. It is taken if it is free and in a range.
	Hint netip.Addr
}

// probes is how many places are tried at random before all are tried in turn: at nine tenths full, 97 of 100
// requests need no more.
const probes = 32

// Pick gives the port an address that is not taken: its hint, else one by the hash of its MAC, so that every head
// picks the same. taken says whether somebody else has or must have an address; fixed addresses of others are its
// business. It fails with [ErrFull], or with [trivet.ErrInvalid] where the network has no range for this use.
func Pick(r Request, taken func(netip.Addr) bool) (netip.Addr, error) {
	p := newPlan(r.Network, r.Use)
	if p.size == 0 {
		return netip.Addr{}, fmt.Errorf("%w: network %s has no range for %s machines", trivet.ErrInvalid, r.Network.Name, r.Use)
	}
	free := func(a netip.Addr) bool { return p.usable(a) && !taken(a) }
	if p.has(r.Hint) && free(r.Hint) {
		return r.Hint, nil
	}
	first, step := hash(r.MAC)
	for i := range uint64(probes) {
		if a := p.at((first + i*step) % p.size); free(a) {
			return a, nil
		}
	}
	for i := range p.size {
		if a := p.at((first + i) % p.size); free(a) {
			return a, nil
		}
	}
	return netip.Addr{}, fmt.Errorf("%w for %s machines in network %s: all of %s are taken", ErrFull, r.Use, r.Network.Name, p)
}

// Fits says whether an address may be given to a machine of this use.
func Fits(n *trivet.Network, use string, a netip.Addr) bool {
	p := newPlan(n, use)
	return p.has(a) && p.usable(a)
}

// Assignable says whether a port may have an address fixed by the operator, inside a range or not.
func Assignable(n *trivet.Network, a netip.Addr) bool {
	return n.Spec.CIDR.Contains(a) && (&plan{network: n}).usable(a)
}

// Reclaim chooses the address to take back when a network is full: of those that may be given to this use, the one
// whose promise ended first. It is nil when all promises hold. Addresses of machines and fixed ones are never taken
// back.
func Reclaim(n *trivet.Network, use string, addresses []*trivet.Address, now time.Time) *trivet.Address {
	p := newPlan(n, use)
	var oldest *trivet.Address
	for _, a := range addresses {
		if !Expired(a, now) || oldest != nil && !a.Status.Until.Before(oldest.Status.Until) {
			continue
		}
		if ip, err := netip.ParseAddr(a.Name); err == nil && a.Spec.Network == n.Name && p.has(ip) && p.usable(ip) {
			oldest = a
		}
	}
	return oldest
}

// Expired says whether the promise of an address has ended. A machine's own and fixed ones never end.
func Expired(a *trivet.Address, now time.Time) bool {
	kept := a.Spec.Fixed || a.Spec.Machine != "" && !a.Status.Declined
	return !kept && !a.Status.Until.IsZero() && !now.Before(a.Status.Until)
}

// hash gives where to begin and by which odd step to go on.
func hash(mac string) (first, step uint64) {
	h := fnv.New128a()
	h.Write([]byte(mac)) // never fails
	sum := h.Sum(nil)
	return binary.BigEndian.Uint64(sum[8:]) >> 1, binary.BigEndian.Uint64(sum)>>32 | 1
}

// plan is the ranges of one use, end to end.
type plan struct {
	network *trivet.Network
	ranges  []trivet.Range
	size    uint64 // addresses in all ranges
}

func newPlan(n *trivet.Network, use string) *plan {
	p := &plan{network: n}
	for _, r := range n.Spec.Ranges {
		if r.Use != "" && r.Use != use || !r.From.Is4() || !r.To.Is4() || r.To.Less(r.From) {
			continue
		}
		p.ranges = append(p.ranges, r)
		p.size += count(r)
	}
	return p
}

func count(r trivet.Range) uint64 { return uint64(number(r.To)) - uint64(number(r.From)) + 1 }

// at gives the address at a place below size.
func (p *plan) at(i uint64) netip.Addr {
	for _, r := range p.ranges {
		if n := count(r); i >= n {
			i -= n
			continue
		}
		return address(number(r.From) + uint32(i))
	}
	return netip.Addr{}
}

func (p *plan) has(a netip.Addr) bool {
	return slices.ContainsFunc(p.ranges, func(r trivet.Range) bool { return !a.Less(r.From) && !r.To.Less(a) })
}

// usable leaves out what no machine may have: the network's own address, its broadcast address, its servers'.
func (p *plan) usable(a netip.Addr) bool {
	s := &p.network.Spec
	if !a.Is4() || !s.CIDR.Contains(a) || a == s.Gateway || slices.Contains(s.DNS, a) || slices.Contains(s.NTP, a) {
		return false
	}
	if s.CIDR.Bits() > 30 {
		return true // RFC 3021: nothing is set aside on a link of two
	}
	host := number(a) & (1<<(32-s.CIDR.Bits()) - 1)
	return host != 0 && host != 1<<(32-s.CIDR.Bits())-1
}

func (p *plan) String() string {
	var parts []string
	for _, r := range p.ranges {
		parts = append(parts, fmt.Sprintf("%s to %s", r.From, r.To))
	}
	return strings.Join(parts, ", ")
}

func number(a netip.Addr) uint32 {
	v := a.As4()
	return binary.BigEndian.Uint32(v[:])
}

func address(n uint32) netip.Addr {
	var v [4]byte
	binary.BigEndian.PutUint32(v[:], n)
	return netip.AddrFrom4(v)
}
