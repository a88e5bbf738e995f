// Package limit bounds what the callers of a server hold, so that one caller, or many unknown ones, leave enough for
// all others.
//
// A [Set] counts what stays open: connections ([Listener]) and transfers. A caller is unknown until it is recognised,
// by its credential or because it answers. Unknown callers have a limit per address and one in total; recognised ones
// have a share of their own, which unknown callers cannot use. At a limit, a new entry of an unknown caller replaces
// the one that has waited longest, of the same address or of the address that has most, and is refused where none
// waits: an honest caller needs its entry for milliseconds before it is recognised, so that it is served while others
// hold all they can.
//
// A [Rate] bounds how often an address begins something, such as a connection with a TLS handshake, whose cost comes
// before its caller is known.
//
// [CheckOutbound] bounds where this program connects to.
//
// A [Pool] counts amounts that are held for a short time, such as the bytes of requests' bodies.
package limit

import "net/netip"

// Class is how an address is limited.
type Class int

// The classes.
const (
	Anyone  Class = iota // within PerAddress
	Shared               // a load balancer or gateway: the address of many callers, without a limit per address
	Trusted              // recognised from the start
)

// keyOf returns what counts as one address: an IPv4 address, or the /64 network of an IPv6 host, which can have all of
// its addresses.
func keyOf(addr netip.Addr) netip.Addr {
	addr = addr.Unmap().WithZone("")
	if addr.Is6() {
		if p, err := addr.Prefix(64); err == nil {
			return p.Addr()
		}
	}
	return addr
}
