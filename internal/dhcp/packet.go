package dhcp

import (
	"encoding/binary"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
)

// Packet is a valid packet of a client. Its methods never fail: what is absent or malformed is the zero value. What
// they return must not be changed.
type Packet struct {
	packet *dhcpv4.DHCPv4
	worker *worker // nil outside of a Server

	Interface string         // that received it, if known
	Ifindex   int            // its index
	Local     netip.Addr     // the server's address: the destination, or for a broadcast the interface's first address
	From      netip.AddrPort // the sender: the relay, or the client
	Port      uint16         // the destination port: ServerPort or ProxyPort
	Unicast   bool           // the destination is Local
	Received  time.Time
}

// ParsePacket parses a packet as the server does. Its errors are trivet.ErrInvalid. It is for tools and tests: the
// fields are not set.
func ParsePacket(b []byte) (*Packet, error) { return parse(b) }

// Yield lets the server continue with other packets while the Handler waits. It is false where as many wait as may:
// the Handler must not wait then, and return no reply. The Handler's own goroutine must call it.
func (r *Packet) Yield() bool { return r.worker == nil || r.worker.yield() }

// Type is never the zero value.
func (r *Packet) Type() Type { return r.packet.MessageType() }

// Option returns the value of an option; the concatenation of several with one code (RFC 3396).
func (r *Packet) Option(code byte) []byte { return r.packet.Options[code] }

// MAC returns the client's hardware address, at most 16 bytes; empty on InfiniBand (RFC 4390).
func (r *Packet) MAC() net.HardwareAddr { return r.packet.ClientHWAddr }

// ClientID returns option 61, a type byte and the identifier.
func (r *Packet) ClientID() []byte { return r.Option(OptClientID) }

// XID returns the transaction ID, the same in all packets of one exchange.
func (r *Packet) XID() uint32 { return binary.BigEndian.Uint32(r.packet.TransactionID[:]) }

// Elapsed returns the secs field: how long the client has tried.
func (r *Packet) Elapsed() time.Duration { return time.Duration(r.packet.NumSeconds) * time.Second }

// ClientIP returns ciaddr: the address that the client has.
func (r *Packet) ClientIP() netip.Addr { return addr4(r.packet.ClientIPAddr) }

// RequestedIP returns option 50: the address that the client wants, or was offered.
func (r *Packet) RequestedIP() netip.Addr { return addr4(r.Option(OptRequestedIP)) }

// Relay returns giaddr: the relay's address on the client's network.
func (r *Packet) Relay() netip.Addr { return addr4(r.packet.GatewayIPAddr) }

// RelayOption returns a sub-option of option 82.
func (r *Packet) RelayOption(code byte) ([]byte, bool) { return subOption(r.Option(OptRelay), code) }

// ServerID returns option 54: the server that the packet is for.
func (r *Packet) ServerID() netip.Addr { return addr4(r.Option(OptServerID)) }

// ServerIDOverride returns the server identifier that the relay demands (RFC 5107). It is set in each Reply; the
// packets that follow have it as ServerID.
func (r *Packet) ServerIDOverride() netip.Addr {
	v, _ := r.RelayOption(RelayServerIDOverride)
	return addr4(v)
}

// Link returns an address of the client's network: the relay's link selection (RFC 3527), the client's subnet
// selection (RFC 3011), the relay's address, the client's, or the server's on the receiving interface.
func (r *Packet) Link() netip.Addr {
	v, _ := r.RelayOption(RelayLinkSelect)
	for _, a := range []netip.Addr{addr4(v), addr4(r.Option(OptSubnetSelect)), r.Relay(), r.ClientIP()} {
		if a.IsValid() {
			return a
		}
	}
	return r.Local
}

// Phase is why a client sends DHCPREQUEST (RFC 2131 section 4.3.2).
type Phase int

// The phases.
const (
	NoPhase    Phase = iota // not a DHCPREQUEST
	Selecting               // accepts the offer of ServerID
	InitReboot              // verifies its previous address, RequestedIP
	Renewing                // renews ClientIP with its server
	Rebinding               // renews ClientIP with any server
)

// Phase returns the phase of a DHCPREQUEST.
func (r *Packet) Phase() Phase {
	switch {
	case r.Type() != Request:
		return NoPhase
	case r.ServerID().IsValid():
		return Selecting
	case !r.ClientIP().IsValid():
		return InitReboot
	case r.Unicast && !r.Relay().IsValid():
		return Renewing
	default:
		return Rebinding
	}
}

// HostName returns option 12.
func (r *Packet) HostName() string { return text(r.Option(OptHostName)) }

// Wants reports whether the client requests the option, by option 55.
func (r *Packet) Wants(code byte) bool { return slices.Contains(r.Option(OptRequestList), code) }

// Broadcast reports that the client cannot receive unicast before it has an address.
func (r *Packet) Broadcast() bool { return r.packet.Flags&0x8000 != 0 }

// LoadHash returns RFC 3074's hash of the client's identifier, else of its hardware address.
func (r *Packet) LoadHash() byte {
	if id := r.ClientID(); len(id) > 0 {
		return LoadHash(id)
	}
	return LoadHash(r.MAC())
}

// room returns how many bytes of DHCP the client accepts, by option 57, which includes the IP and UDP headers.
func (r *Packet) room() int {
	size := minMax
	if v := r.Option(OptMaxSize); len(v) == 2 {
		size = min(max(int(binary.BigEndian.Uint16(v)), minMax), maxMax)
	}
	return size - ipUDPHeader
}

// addr4 returns the address in four bytes; not valid if there are not four, or all are zero.
func addr4(b []byte) netip.Addr {
	a, ok := netip.AddrFromSlice(b)
	if !ok || !a.Is4() || a.IsUnspecified() {
		return netip.Addr{}
	}
	return a
}

// unicast reports whether a is a unicast address, or not set.
func unicast(a netip.Addr) bool {
	return !a.IsValid() || a.As4()[0] != 0 && a.As4()[0] < 224
}

// text returns an option's text without terminating NULs and control characters.
func text(b []byte) string {
	return strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f {
			return -1
		}
		return c
	}, strings.ToValidUTF8(strings.TrimRight(string(b), "\x00"), ""))
}

// subOption returns a sub-option of options 43, 82 and 175. Option 43 may be padded by 0 and end with 255.
func subOption(b []byte, code byte) (value []byte, ok bool) {
	for len(b) >= 2 && len(b) >= 2+int(b[1]) {
		if b[0] == code {
			return b[2 : 2+int(b[1])], true
		}
		b = b[2+int(b[1]):]
	}
	return nil, false
}
