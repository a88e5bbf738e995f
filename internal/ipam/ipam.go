// Package ipam chooses addresses. It is pure: the caller knows which addresses are taken, and records the choice.
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

// ErrFull reports that every address of the ranges is taken.
var ErrFull = errors.New("no free address")

// The uses of a range besides "", which serves all (see [trivet.Range]).
const (
	Known     = "known"
	Discovery = "discovery"
)

// Request is a port that needs an address.
type Request struct {
	Network *trivet.Network
	Use     string // Known or Discovery
	MAC     string // any text that is unique to the port
	// Hint is the address that the port had or wants. It is chosen if it is free and in a range.
	Hint netip.Addr
}

// probes is how many addresses are tried by hash before all are tried in order: where nine tenths are taken, 97 of
// 100 requests need no more.
const probes = 32

// Pick returns an address that is not taken: the hint, else one by the hash of the MAC, so that every head picks
// the same. taken reports whether an address is assigned to another port, including fixed addresses. It fails with
// [ErrFull], or with [trivet.ErrInvalid] where the network has no range for this use.
func Pick(r Request, taken func(netip.Addr) bool) (netip.Addr, error) {
	p := newPlan(r.Network, r.Use)
	if p.size == 0 {
		return netip.Addr{}, fmt.Errorf("%w: network %s has no range for %s machines", trivet.ErrInvalid,
			r.Network.Name, r.Use)
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
	return netip.Addr{}, fmt.Errorf("%w for %s machines in network %s: all of %s are taken", ErrFull, r.Use,
		r.Network.Name, p)
}

// Fits reports whether an address may be assigned to a machine of this use.
func Fits(n *trivet.Network, use string, a netip.Addr) bool {
	p := newPlan(n, use)
	return p.has(a) && p.usable(a)
}

// Assignable reports whether an address may be fixed for a port, inside a range or not.
func Assignable(n *trivet.Network, a netip.Addr) bool {
	return n.Spec.CIDR.Contains(a) && (&plan{network: n}).usable(a)
}

// Reclaim returns the address to reclaim when a network is full: of those that fit this use, the one whose lease
// ended first; nil if there is none. overdue returns since when a lease may be taken; negative: not yet. Addresses of
// machines and fixed ones are never reclaimed.
func Reclaim(n *trivet.Network, use string, addresses []*trivet.Address,
	overdue func(*trivet.Address) time.Duration) *trivet.Address {
	p := newPlan(n, use)
	var oldest *trivet.Address
	longest := time.Duration(-1)
	for _, a := range addresses {
		if a.Spec.Network != n.Name || Kept(a) {
			continue
		}
		ip, err := netip.ParseAddr(a.Name)
		if err != nil || !p.has(ip) || !p.usable(ip) {
			continue
		}
		if since := overdue(a); since > longest {
			oldest, longest = a, since
		}
	}
	return oldest
}

// Kept reports whether the lease of an address does not end: a machine's, or a fixed one.
func Kept(a *trivet.Address) bool {
	return a.Spec.Fixed || a.Spec.Machine != "" && !a.Status.Declined || a.Status.Lasts == 0
}

// hash returns the first index to try and an odd step.
func hash(mac string) (first, step uint64) {
	h := fnv.New128a()
	h.Write([]byte(mac)) // never fails
	sum := h.Sum(nil)
	return binary.BigEndian.Uint64(sum[8:]) >> 1, binary.BigEndian.Uint64(sum)>>32 | 1
}

// plan is the concatenated ranges of one use.
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

// at returns the address at an index below size.
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

func (p *plan) usable(a netip.Addr) bool { return Usable(p.network, a) }

// Usable excludes addresses of a network that no machine may have: the network's, its broadcast address, its gateway
// and servers.
func Usable(n *trivet.Network, a netip.Addr) bool {
	s := &n.Spec
	if !a.Is4() || !s.CIDR.Contains(a) || a == s.Gateway || slices.Contains(s.DNS, a) || slices.Contains(s.NTP, a) {
		return false
	}
	if s.CIDR.Bits() > 30 {
		return true // RFC 3021: no address is reserved on a link of two
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
