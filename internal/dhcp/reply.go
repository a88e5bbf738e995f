package dhcp

import (
	"encoding/binary"
	"net/netip"
	"time"
)

// Reply is the answer of a Handler. All other fields follow from the packet: transaction, client identifier (RFC
// 6842), relay option (RFC 3046), destination.
type Reply struct {
	Type   Type       // Offer, Ack or Nak
	Server netip.Addr // option 54: the server whose offer was accepted, or firmware drops the answer

	// The following are not sent in a Nak, except Options.

	Address    netip.Addr    // yiaddr; none in the answer of a proxy or to INFORM
	Lease      time.Duration // option 51, whole seconds; none without Address
	NextServer netip.Addr    // siaddr: the TFTP server
	BootFile   string        // a path or URL: option 67, and the field file if it fits there
	Class      Class         // option 60: firmware accepts only answers of its own class

	// Options are further options, the most important first: those that exceed the client's maximum message size
	// are left out.
	Options []Option
}

// Option is one option to send.
type Option struct {
	Code  byte
	Value []byte
}

// Add appends options.
func (r *Reply) Add(o ...Option) { r.Options = append(r.Options, o...) }

// Addrs returns an option of IPv4 addresses.
func Addrs(code byte, addrs ...netip.Addr) Option {
	v := make([]byte, 0, 4*len(addrs))
	for _, a := range addrs {
		if a = a.Unmap(); a.Is4() {
			v = append(v, a.AsSlice()...)
		}
	}
	return Option{code, v}
}

// Text returns an option of text.
func Text(code byte, s string) Option { return Option{code, []byte(s)} }

// Seconds returns an option of a duration, at most 2^32-1 s, which means infinity.
func Seconds(code byte, d time.Duration) Option {
	return Option{code, binary.BigEndian.AppendUint32(nil, wholeSeconds(d))}
}

func wholeSeconds(d time.Duration) uint32 {
	return uint32(min(max(int64(d/time.Second), 0), 1<<32-1))
}

// SubnetMask returns option 1 of a network.
func SubnetMask(network netip.Prefix) Option {
	var v [4]byte
	binary.BigEndian.PutUint32(v[:], uint32(uint64(1<<32-1)<<(32-max(network.Bits(), 0))))
	return Option{OptSubnetMask, v[:]}
}

// SkipDiscovery returns option 43 by which PXE firmware loads the boot file of this answer at once, without boot
// server discovery (PXE 2.1 section 2.2.3, PXE_DISCOVERY_CONTROL bit 3).
func SkipDiscovery() Option { return Option{OptVendor, []byte{6, 1, 8, 255}} }
