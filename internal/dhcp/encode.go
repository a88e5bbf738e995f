package dhcp

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/trivet-project/trivet"
)

var cookie = [4]byte{99, 130, 83, 99}

// maxFile is the size of the field file without its terminating NUL.
const maxFile = 127

// encode writes the answer to r into b[:0] and returns how many options did not fit. It fails on a Reply that is
// not valid.
func (rep *Reply) encode(b []byte, r *Packet) (packet []byte, left int, err error) {
	if rep.Type != Offer && rep.Type != Ack && rep.Type != Nak {
		return nil, 0, fmt.Errorf("reply of type %s: %w", rep.Type, trivet.ErrInvalid)
	}
	w := writer{b: rep.fixed(b, r), limit: r.room()}
	echoed := optionSize(r.ClientID()) + optionSize(r.Option(OptRelay)) + 1
	if w.limit -= echoed; w.limit < headerSize+16 {
		return nil, 0, fmt.Errorf("client identifier and relay option fill the packet: %w", trivet.ErrTooLarge)
	}
	rep.options(&w, r)
	w.limit += echoed
	w.echo(OptClientID, r.ClientID())
	w.echo(OptRelay, r.Option(OptRelay)) // last, as RFC 3046 section 2.1 asks
	w.b = append(w.b, 255)
	for len(w.b) < minSend {
		w.b = append(w.b, 0)
	}
	return w.b, w.left, nil
}

// fixed writes the fields before the options.
func (rep *Reply) fixed(b []byte, r *Packet) []byte {
	p := r.packet
	b = append(b[:0], make([]byte, headerSize)...)
	b[0], b[1], b[2] = byte(dhcpv4.OpcodeBootReply), byte(p.HWType), byte(len(p.ClientHWAddr))
	copy(b[4:], p.TransactionID[:])
	flags := p.Flags
	if rep.Type == Nak {
		flags |= 0x8000 // the relay must broadcast: the client's address is not valid (RFC 2131 section 4.3.2)
	}
	binary.BigEndian.PutUint16(b[atFlags:], flags)
	putAddr(b[atGiaddr:], r.Relay())
	copy(b[atChaddr:], p.ClientHWAddr)
	copy(b[atCookie:], cookie[:])
	if rep.Type == Nak {
		return b
	}
	if rep.Type == Ack {
		putAddr(b[atCiaddr:], r.ClientIP())
	}
	putAddr(b[atYiaddr:], rep.Address)
	putAddr(b[atSiaddr:], rep.NextServer)
	if len(rep.BootFile) <= maxFile {
		copy(b[atFile:], rep.BootFile)
	}
	return b
}

func putAddr(b []byte, a netip.Addr) {
	if a = a.Unmap(); a.Is4() {
		v := a.As4()
		copy(b, v[:])
	}
}

// options writes the options of the Reply, the required ones first.
func (rep *Reply) options(w *writer, r *Packet) {
	w.put(OptType, []byte{byte(rep.Type)})
	id := r.ServerIDOverride()
	if !id.IsValid() {
		id = rep.Server
	}
	if id.Is4() {
		v := id.As4()
		w.put(OptServerID, v[:])
	}
	if rep.Type != Nak {
		if rep.Lease > 0 {
			w.put(OptLease, Seconds(OptLease, rep.Lease).Value)
		}
		if rep.Class != OtherClient {
			w.put(OptClass, []byte(rep.Class.String()))
		}
		if rep.BootFile != "" {
			w.put(OptBootFile, []byte(rep.BootFile))
		}
	}
	for _, o := range rep.Options {
		w.put(o.Code, o.Value)
	}
	if rep.Class == PXEClient && rep.Type != Nak {
		w.echo(OptUUID, r.Option(OptUUID)) // RFC 4578 section 2.3
	}
}

// writer appends options as long as they fit.
type writer struct {
	b     []byte
	limit int // maximum length of b
	left  int // options that did not fit
}

func (w *writer) put(code byte, value []byte) {
	if len(w.b)+optionSize(value) > w.limit {
		w.left++
		return
	}
	for first := true; first || len(value) > 0; first = false {
		n := min(len(value), 255) // longer ones are split (RFC 3396)
		w.b = append(append(w.b, code, byte(n)), value[:n]...)
		value = value[n:]
	}
}

// echo returns an option to the client or relay that sent it.
func (w *writer) echo(code byte, value []byte) {
	if len(value) > 0 {
		w.put(code, value)
	}
}

// optionSize returns the size of an option in a packet.
func optionSize(value []byte) int { return len(value) + 2*max((len(value)+254)/255, 1) }
