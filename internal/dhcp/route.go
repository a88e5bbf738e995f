package dhcp

import "net/netip"

// way is how an answer reaches its client.
type way string

const (
	toRelay   way = "relay"
	toUnicast way = "unicast"   // the client has an address
	toFrame   way = "frame"     // the client gets its address with this answer, so nobody answers ARP for it yet
	toAll     way = "broadcast" // the client cannot be told otherwise
)

var everyone = netip.AddrFrom4([4]byte{255, 255, 255, 255})

// route decides where the answer to r goes (RFC 2131 section 4.1, RFC 8357 section 5.3).
func (rep *Reply) route(r *Packet) (way, netip.AddrPort) {
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
		return toAll, netip.AddrPortFrom(everyone, ClientPort)
	case r.ClientIP().IsValid():
		return toUnicast, netip.AddrPortFrom(r.ClientIP(), ClientPort)
	case r.Broadcast() || !rep.Address.Is4() || len(r.MAC()) != 6:
		return toAll, netip.AddrPortFrom(everyone, ClientPort)
	default:
		return toFrame, netip.AddrPortFrom(rep.Address, ClientPort)
	}
}
