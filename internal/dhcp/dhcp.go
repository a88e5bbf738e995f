// Package dhcp is a DHCPv4 server without policy, and a client. It knows packets and sockets, no machines: a
// [Handler] decides each answer and returns it as a [Reply].
//
// The path of a packet: a worker receives it (worker.go, socket.go), parses and checks it (parse.go, packet.go),
// calls the Handler (server.go), encodes the Reply (reply.go, encode.go), decides how it reaches the client
// (route.go) and sends it (raw.go). The client is [Exchange] and [Renew] over a socket (client.go), and [Acquire],
// [Extend] and [Inquire] on an interface (interface.go).
package dhcp

import (
	"context"

	"github.com/insomniacslk/dhcp/dhcpv4"
)

// Handler returns the reply to a packet; nil is no reply. It decides from memory, without waiting. Where it must
// wait, for a write to a store, it calls [Packet.Yield] first, which may refuse, and bounds the wait: a client
// retransmits after some seconds. So it is called from several goroutines at once.
type Handler interface {
	ServeDHCP(ctx context.Context, r *Packet) *Reply
}

// HandlerFunc makes a function a Handler.
type HandlerFunc func(ctx context.Context, r *Packet) *Reply

// ServeDHCP calls f.
func (f HandlerFunc) ServeDHCP(ctx context.Context, r *Packet) *Reply { return f(ctx, r) }

// Type is a DHCP message's type (option 53).
type Type = dhcpv4.MessageType

// The message types.
const (
	Discover = dhcpv4.MessageTypeDiscover
	Offer    = dhcpv4.MessageTypeOffer
	Request  = dhcpv4.MessageTypeRequest
	Decline  = dhcpv4.MessageTypeDecline
	Ack      = dhcpv4.MessageTypeAck
	Nak      = dhcpv4.MessageTypeNak
	Release  = dhcpv4.MessageTypeRelease
	Inform   = dhcpv4.MessageTypeInform
)

// Ports of DHCP, and of PXE's boot servers and proxies (PXE 2.1 section 2.2.3).
const (
	ServerPort = 67
	ClientPort = 68
	ProxyPort  = 4011
)

// Option codes that this package reads or writes itself, or that its callers commonly add. RFC 2132 unless noted.
const (
	OptSubnetMask     = 1
	OptRouter         = 3
	OptDNS            = 6
	OptHostName       = 12
	OptDomainName     = 15
	OptMTU            = 26
	OptNTP            = 42
	OptVendor         = 43
	OptRequestedIP    = 50
	OptLease          = 51
	OptOverload       = 52
	OptType           = 53
	OptServerID       = 54
	OptRequestList    = 55
	OptMessage        = 56
	OptMaxSize        = 57
	OptClass          = 60
	OptClientID       = 61
	OptTFTPServer     = 66
	OptBootFile       = 67
	OptUserClass      = 77  // RFC 3004
	OptRelay          = 82  // RFC 3046
	OptArch           = 93  // RFC 4578
	OptUUID           = 97  // RFC 4578
	OptSubnetSelect   = 118 // RFC 3011
	OptClasslessRoute = 121 // RFC 3442
	OptIPXE           = 175 // iPXE's encapsulated options
)

// Sub-options of the relay agent option, 82.
const (
	RelayCircuitID        = 1  // RFC 3046
	RelayRemoteID         = 2  // RFC 3046
	RelayLinkSelect       = 5  // RFC 3527
	RelayServerIDOverride = 11 // RFC 5107
	RelaySourcePort       = 19 // RFC 8357
)
