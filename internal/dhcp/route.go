package dhcp

import "net/netip"

// path is how an answer reaches its client.
type path string

const (
	toRelay   path = "relay"
	toUnicast path = "unicast"   // the client has an address
	toFrame   path = "frame"     // the client gets its address by this answer, and does not answer ARP for it yet
	toAll     path = "broadcast" // the client receives nothing else
)

var broadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})

// route returns the path and destination of the answer to r (RFC 2131 section 4.1, RFC 8357 section 5.3).
func (rep *Reply) route(r *Packet) (path, netip.AddrPort) {
	switch {
	case r.Relay().IsValid():
		port := uint16(ServerPort)
		if _, ok := r.RelayOption(RelaySourcePort); ok {
			port = r.From.Port()
		}
		return toRelay, netip.AddrPortFrom(r.Relay(), port)
	case r.Port == ProxyPort && r.From.IsValid() && !r.From.Addr().IsUnspecified():
		return toUnicast, r.From
	case rep.Type == Nak:
		return toAll, netip.AddrPortFrom(broadcast, ClientPort)
	case r.ClientIP().IsValid():
		return toUnicast, netip.AddrPortFrom(r.ClientIP(), ClientPort)
	case r.Broadcast() || !rep.Address.Is4() || len(r.MAC()) != 6:
		return toAll, netip.AddrPortFrom(broadcast, ClientPort)
	default:
		return toFrame, netip.AddrPortFrom(rep.Address, ClientPort)
	}
}
