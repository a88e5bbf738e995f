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

// Packet is a client's packet that passed the checks. Its methods never fail: what is absent or malformed is the zero
// value. Nothing it returns may be changed.
type Packet struct {
	packet *dhcpv4.DHCPv4
	worker *worker // nil outside of a Server

	Interface string         // where it came in, if known
	Ifindex   int            // the same by number
	Local     netip.Addr     // our address there: what it was sent to, or for a broadcast the interface's first
	From      netip.AddrPort // who sent it: the relay, or the client
	Port      uint16         // our port that it was sent to: ServerPort, or ProxyPort
	Unicast   bool           // it was sent to Local alone
	Received  time.Time
}

// ParsePacket reads a packet as the server does. Its errors are trivet.ErrInvalid. It is for tools and tests; what tells
// of the packet's arrival is left zero.
func ParsePacket(b []byte) (*Packet, error) { return parse(b) }

// Yield lets the server go on with other packets while the Handler waits. The Handler's own goroutine calls it, before.
func (r *Packet) Yield() {
	if r.worker != nil {
		r.worker.yield()
	}
}

// Type is never the zero value.
func (r *Packet) Type() Type { return r.packet.MessageType() }

// Option gives the value of an option, of several of one code the concatenation (RFC 3396).
func (r *Packet) Option(code byte) []byte { return r.packet.Options[code] }

// MAC is the client's hardware address, at most 16 bytes; empty on InfiniBand (RFC 4390).
func (r *Packet) MAC() net.HardwareAddr { return r.packet.ClientHWAddr }

// ClientID is option 61, a type byte and the identifier.
func (r *Packet) ClientID() []byte { return r.Option(OptClientID) }

// XID is the transaction's number, the same in all packets of one exchange.
func (r *Packet) XID() uint32 { return binary.BigEndian.Uint32(r.packet.TransactionID[:]) }

// Elapsed is for how long the client says to have tried.
func (r *Packet) Elapsed() time.Duration { return time.Duration(r.packet.NumSeconds) * time.Second }

// ClientIP is ciaddr: the address that the client has and can be reached at.
func (r *Packet) ClientIP() netip.Addr { return addr4(r.packet.ClientIPAddr) }

// RequestedIP is option 50: the address that the client would like, or was offered.
func (r *Packet) RequestedIP() netip.Addr { return addr4(r.Option(OptRequestedIP)) }

// Relay is giaddr: the relay's address on the client's network.
func (r *Packet) Relay() netip.Addr { return addr4(r.packet.GatewayIPAddr) }

// RelayOption gives a sub-option of option 82.
func (r *Packet) RelayOption(code byte) ([]byte, bool) { return subOption(r.Option(OptRelay), code) }

// ServerID is option 54: which server the client means.
func (r *Packet) ServerID() netip.Addr { return addr4(r.Option(OptServerID)) }

// ServerIDOverride is the server identifier that the relay demands (RFC 5107). A Reply gets it by itself; requests that
// follow name it as ServerID.
func (r *Packet) ServerIDOverride() netip.Addr {
	v, _ := r.RelayOption(RelayServerIDOverride)
	return addr4(v)
}

// Link is an address on the client's network: what the relay names (RFC 3527), what the client names (RFC 3011), the
// relay itself, the client's own, or ours where the packet came in.
func (r *Packet) Link() netip.Addr {
	v, _ := r.RelayOption(RelayLinkSelect)
	for _, a := range []netip.Addr{addr4(v), addr4(r.Option(OptSubnetSelect)), r.Relay(), r.ClientIP()} {
		if a.IsValid() {
			return a
		}
	}
	return r.Local
}

// Phase says why a client sends DHCPREQUEST (RFC 2131 section 4.3.2).
type Phase int

// The phases.
const (
	NoPhase    Phase = iota // not a DHCPREQUEST
	Selecting               // takes the offer of ServerID
	InitReboot              // wants its old address, RequestedIP, confirmed
	Renewing                // asks the server that gave ClientIP for more time
	Rebinding               // asks any server for the same
)

// Phase of a DHCPREQUEST.
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

// HostName is option 12.
func (r *Packet) HostName() string { return text(r.Option(OptHostName)) }

// Asks says whether the client lists the option in option 55.
func (r *Packet) Asks(code byte) bool { return slices.Contains(r.Option(OptRequestList), code) }

// Broadcast says that the client cannot receive unicast before it has an address.
func (r *Packet) Broadcast() bool { return r.packet.Flags&0x8000 != 0 }

// LoadHash is RFC 3074's hash of the client's identifier, else of its hardware address.
func (r *Packet) LoadHash() byte {
	if id := r.ClientID(); len(id) > 0 {
		return LoadHash(id)
	}
	return LoadHash(r.MAC())
}

// room is how many bytes of DHCP the client takes, by option 57, which counts the IP and UDP headers.
func (r *Packet) room() int {
	size := minMax
	if v := r.Option(OptMaxSize); len(v) == 2 {
		size = min(max(int(binary.BigEndian.Uint16(v)), minMax), maxMax)
	}
	return size - ipUDPHeader
}

// addr4 is the address in four bytes, invalid if there are not four or they are zero.
func addr4(b []byte) netip.Addr {
	a, ok := netip.AddrFromSlice(b)
	if !ok || !a.Is4() || a.IsUnspecified() {
		return netip.Addr{}
	}
	return a
}

// unicast says whether a may be a host's address; none is fine.
func unicast(a netip.Addr) bool {
	return !a.IsValid() || a.As4()[0] != 0 && a.As4()[0] < 224
}

// text is an option's text without the NULs that some clients end it with, and without what cannot be printed.
func text(b []byte) string {
	return strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f {
			return -1
		}
		return c
	}, strings.ToValidUTF8(strings.TrimRight(string(b), "\x00"), ""))
}

// subOption finds a code in the pairs that options 43, 82 and 175 hold. Option 43 may pad by 0 and end by 255.
func subOption(b []byte, code byte) (value []byte, ok bool) {
	for len(b) >= 2 && len(b) >= 2+int(b[1]) {
		if b[0] == code {
			return b[2 : 2+int(b[1])], true
		}
		b = b[2+int(b[1]):]
	}
	return nil, false
}
