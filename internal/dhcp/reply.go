package dhcp

import (
	"encoding/binary"
	"net/netip"
	"time"
)

// Reply is what a Handler decided to answer. All else follows from the request: transaction, client identifier (RFC
// 6842), relay option (RFC 3046), the way it is sent.
type Reply struct {
	Type   Type       // Offer, Ack or Nak
	Server netip.Addr // option 54. A head that acknowledges another's offer gives the other's, or firmware drops it.

	// Of a Nak the rest is not sent, but for Options.

	Address    netip.Addr    // yiaddr; none in a proxy's answer and in one to INFORM
	Lease      time.Duration // option 51, whole seconds; none as for Address
	NextServer netip.Addr    // siaddr: the TFTP server
	BootFile   string        // a path or URL: option 67, and the field file if it fits there
	Class      Class         // option 60: firmware heeds only answers of its own class

	// Options are the further ones, the most important first: what does not fit the client's room is left out from the
	// end.
	Options []Option
}

// Option is one option to send.
type Option struct {
	Code  byte
	Value []byte
}

// Add appends options.
func (r *Reply) Add(o ...Option) { r.Options = append(r.Options, o...) }

// Addrs makes an option of IPv4 addresses.
func Addrs(code byte, addrs ...netip.Addr) Option {
	v := make([]byte, 0, 4*len(addrs))
	for _, a := range addrs {
		if a = a.Unmap(); a.Is4() {
			v = append(v, a.AsSlice()...)
		}
	}
	return Option{code, v}
}

// Text makes an option of text.
func Text(code byte, s string) Option { return Option{code, []byte(s)} }

// Seconds makes an option of a duration, at most 2^32-1 s, which means for ever.
func Seconds(code byte, d time.Duration) Option {
	return Option{code, binary.BigEndian.AppendUint32(nil, wholeSeconds(d))}
}

func wholeSeconds(d time.Duration) uint32 {
	return uint32(min(max(int64(d/time.Second), 0), 1<<32-1))
}

// SubnetMask makes option 1 of a network's.
func SubnetMask(network netip.Prefix) Option {
	var v [4]byte
	binary.BigEndian.PutUint32(v[:], uint32(uint64(1<<32-1)<<(32-max(network.Bits(), 0))))
	return Option{OptSubnetMask, v[:]}
}

// SkipDiscovery is option 43 by which PXE firmware loads the boot file of this answer at once, without a search for boot
// servers (PXE 2.1 section 2.2.3, PXE_DISCOVERY_CONTROL bit 3).
func SkipDiscovery() Option { return Option{OptVendor, []byte{6, 1, 8, 255}} }
