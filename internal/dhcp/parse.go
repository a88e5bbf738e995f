package dhcp

import (
	"fmt"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/trivet-project/trivet"
)

// Sizes of packets in bytes.
const (
	headerSize  = 240 // fixed fields and magic cookie; the options follow
	maxReceive  = 2048
	minSend     = 300 // of BOOTP; some relays and clients drop smaller ones
	minMax      = 576 // every client accepts an IP datagram of this size (RFC 2131 section 2)
	maxMax      = 1500
	ipUDPHeader = 28
	maxHops     = 16
)

// Offsets of fixed fields (RFC 2131 section 2).
const (
	atSecs   = 8
	atFlags  = 10
	atCiaddr = 12
	atYiaddr = 16
	atSiaddr = 20
	atGiaddr = 24
	atChaddr = 28
	atSname  = 44
	atFile   = 108
	atCookie = 236
)

// parse parses a client's packet and checks all that this package relies on. Its errors are trivet.ErrInvalid.
func parse(b []byte) (*Packet, error) {
	if len(b) < headerSize || len(b) > maxReceive {
		return nil, fmt.Errorf("%d bytes: %w", len(b), trivet.ErrInvalid)
	}
	p, err := dhcpv4.FromBytes(b)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", err, trivet.ErrInvalid)
	}
	if err := overload(p, b); err != nil {
		return nil, err
	}
	r := &Packet{packet: p}
	if err := r.check(b[2]); err != nil {
		return nil, fmt.Errorf("%w: %w", err, trivet.ErrInvalid)
	}
	return r, nil
}

// overload parses the options that a client put into the fields file and sname (RFC 2131 section 4.1).
func overload(p *dhcpv4.DHCPv4, b []byte) error {
	v := p.Options[OptOverload]
	if len(v) != 1 || v[0] > 3 {
		return nil
	}
	if v[0]&1 != 0 {
		p.BootFileName = ""
		if err := p.Options.FromBytes(b[atFile:atCookie]); err != nil {
			return fmt.Errorf("options in file: %w: %w", err, trivet.ErrInvalid)
		}
	}
	if v[0]&2 != 0 {
		p.ServerHostName = ""
		if err := p.Options.FromBytes(b[atSname:atFile]); err != nil {
			return fmt.Errorf("options in sname: %w: %w", err, trivet.ErrInvalid)
		}
	}
	return nil
}

// check refuses packets that no client sends, and those whose answer would be sent to a wrong address. hlen is the
// packet's.
func (r *Packet) check(hlen byte) error {
	p := r.packet
	switch {
	case p.OpCode != dhcpv4.OpcodeBootRequest:
		return fmt.Errorf("operation %d is not a request", p.OpCode)
	case hlen > 16:
		return fmt.Errorf("hardware address of %d bytes", hlen)
	case hlen == 0 && len(r.ClientID()) == 0:
		return fmt.Errorf("neither hardware address nor client identifier")
	case p.HopCount > maxHops:
		return fmt.Errorf("%d hops", p.HopCount)
	case len(p.Options[OptType]) == 0:
		return fmt.Errorf("no message type: BOOTP, not DHCP")
	}
	switch r.Type() {
	case Discover, Request, Decline, Release, Inform:
	default:
		return fmt.Errorf("%s is not sent by clients", r.Type())
	}
	if !unicast(r.Relay()) || !unicast(r.ClientIP()) {
		return fmt.Errorf("giaddr %s or ciaddr %s is not a unicast address", r.Relay(), r.ClientIP())
	}
	return nil
}
