package dhcp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"
	"testing"

	"github.com/insomniacslk/dhcp/iana"

	"github.com/trivet-project/trivet"
)

// What UEFI firmware (OVMF) sends.
func TestFirmwareRequest(t *testing.T) {
	id := []byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}
	r := request(t, Discover, nil, Text(OptClass, "PXEClient:Arch:00007:UNDI:003000"),
		Option{OptArch, []byte{0, 7, 0, 16}}, Option{OptUUID, id})
	if r.Class() != PXEClient || r.IPXE() || !slices.Equal(r.Archs(),
		[]iana.Arch{iana.EFI_X86_64, iana.EFI_X86_64_HTTP}) {
		t.Fatalf("class %v, archs %v", r.Class(), r.Archs())
	}
	if uuid, ok := r.UUID(); !ok || !bytes.Equal(uuid[:], id[1:]) {
		t.Fatalf("UUID %x", uuid)
	}
	if r.MAC().String() != testMAC.String() || r.Phase() != NoPhase || r.Broadcast() || !r.Wants(OptBootFile) ||
		r.Wants(OptMTU+1) {
		t.Fatalf("request %+v", r)
	}
	if h := request(t, Discover, nil, Text(OptClass, "HTTPClient:Arch:00016:UNDI:003000")); h.Class() != HTTPClient {
		t.Fatalf("class %v", h.Class())
	}
}

func TestIPXERequest(t *testing.T) {
	for name, options := range map[string][]Option{
		"plain user class":    {Text(OptUserClass, "iPXE")},
		"RFC 3004 user class": {Text(OptUserClass, "\x03foo\x04iPXE")},
		"features":            {{OptIPXE, []byte{IPXEHTTP, 1, 1, IPXEEFI, 1, 1, IPXETFTP, 1, 0, 9}}},
	} {
		if r := request(t, Discover, nil, options...); !r.IPXE() {
			t.Errorf("%s: not taken for iPXE; user classes %q", name, r.UserClasses())
		}
	}
	r := request(t, Discover, nil, Option{OptIPXE, []byte{IPXEHTTP, 1, 1, IPXETFTP, 1, 0, IPXEEFI, 9}})
	if !r.IPXEFeature(IPXEHTTP) || r.IPXEFeature(IPXETFTP) || r.IPXEFeature(IPXEEFI) || r.IPXEFeature(IPXEHTTPS) {
		t.Fatal("features misread")
	}
}

func TestPhases(t *testing.T) {
	addr := Addrs(OptRequestedIP, testAddr)
	for name, c := range map[string]struct {
		r       *Packet
		unicast bool
		want    Phase
	}{
		"selecting":   {request(t, Request, nil, addr, Addrs(OptServerID, testServer)), false, Selecting},
		"init-reboot": {request(t, Request, nil, addr), false, InitReboot},
		"renewing":    {request(t, Request, field(atCiaddr, "10.99.0.50")), true, Renewing},
		"rebinding":   {request(t, Request, field(atCiaddr, "10.99.0.50")), false, Rebinding},
	} {
		if c.r.Unicast = c.unicast; c.r.Phase() != c.want {
			t.Errorf("%s: phase %d, want %d", name, c.r.Phase(), c.want)
		}
	}
}

func TestLink(t *testing.T) {
	relay := field(atGiaddr, "10.1.0.1")
	for name, c := range map[string]struct {
		r    *Packet
		want string
	}{
		"ours":     {request(t, Discover, nil), "10.99.0.1"},
		"client's": {request(t, Request, field(atCiaddr, "10.2.0.7")), "10.2.0.7"},
		"relay's":  {request(t, Discover, relay), "10.1.0.1"},
		"subnet option": {request(t, Discover, relay, Addrs(OptSubnetSelect, netip.MustParseAddr("10.3.0.0"))),
			"10.3.0.0"},
		"link option": {request(t, Discover, relay, Option{OptRelay, []byte{1, 1, 'x', 5, 4, 10, 4, 0, 0}}),
			"10.4.0.0"},
	} {
		if c.r.Local = testServer; c.r.Link().String() != c.want {
			t.Errorf("%s: %s, want %s", name, c.r.Link(), c.want)
		}
	}
}

func TestMalformedIsRefused(t *testing.T) {
	set := func(at int, v ...byte) func([]byte) { return func(b []byte) { copy(b[at:], v) } }
	good := clientPacket(t, Discover, nil)
	for name, b := range map[string][]byte{
		"empty":               nil,
		"short":               good[:headerSize-1],
		"no end":              bytes.TrimRight(good[:headerSize+3], "\x00"),
		"too long":            append(good, make([]byte, maxReceive)...),
		"reply":               clientPacket(t, Discover, set(0, 2)),
		"cookie":              clientPacket(t, Discover, set(atCookie, 1, 2, 3, 4)),
		"hardware address":    clientPacket(t, Discover, set(2, 17)),
		"no identity":         clientPacket(t, Discover, set(2, 0)),
		"hops":                clientPacket(t, Discover, set(3, 17)),
		"server's message":    clientPacket(t, Offer, nil),
		"no type":             clientPacket(t, Discover, set(headerSize, 0, 0, 0)),
		"multicast relay":     clientPacket(t, Discover, field(atGiaddr, "224.0.0.1")),
		"broadcast relay":     clientPacket(t, Discover, field(atGiaddr, "255.255.255.255")),
		"multicast client":    clientPacket(t, Request, field(atCiaddr, "239.1.1.1")),
		"network zero client": clientPacket(t, Request, field(atCiaddr, "0.0.0.1")),
		"overload":            clientPacket(t, Discover, set(atFile, 12, 200), Option{OptOverload, []byte{1}}),
	} {
		if _, err := parse(b); !errors.Is(err, trivet.ErrInvalid) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

// Options in the fields file and sname, RFC 2131 section 4.1.
func TestOverload(t *testing.T) {
	r := request(t, Discover, func(b []byte) {
		copy(b[atFile:], "\x0c\x04host\xff")
		copy(b[atSname:], "\x0c\x03.ab\xff")
	}, Option{OptOverload, []byte{3}})
	if r.HostName() != "host.ab" {
		t.Fatalf("host name %q", r.HostName())
	}
}

func TestRoom(t *testing.T) {
	for size, want := range map[uint16]int{0: 548, 300: 548, 576: 548, 1400: 1372, 1500: 1472, 65535: 1472} {
		// The client's own option 57 comes first and both are joined, which is no valid option 57.
		r := request(t, Discover, nil)
		r.packet.Options[OptMaxSize] = binary.BigEndian.AppendUint16(nil, size)
		if r.room() != want {
			t.Errorf("size %d: room %d, want %d", size, r.room(), want)
		}
	}
}

func TestTextIsPrintable(t *testing.T) {
	if got := text([]byte("a\x1b[31mb\xff\n\x00\x00")); got != "a[31mb" {
		t.Fatalf("%q", got)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(clientPacket(f, Discover, nil, Text(OptClass, "PXEClient"), Option{OptArch, []byte{0, 7}}))
	f.Add(clientPacket(f, Request, field(atGiaddr, "10.1.0.1"),
		Option{OptRelay, []byte{1, 1, 'x', 19, 0, 11, 4, 1, 2, 3, 4}}))
	f.Add(clientPacket(f, Inform, field(atCiaddr, "10.1.0.1"), Option{OptIPXE, []byte{19, 1, 1, 36, 1}}))
	f.Add(clientPacket(f, Discover, func(b []byte) {
		copy(b[atFile:], "\x0c\x04host\xff")
	}, Option{OptOverload, []byte{1}}))
	f.Add(clientPacket(f, Discover, nil, Text(OptUserClass, "\x03foo\x04iPXE"), Option{OptUUID, make([]byte, 17)}))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := parse(b)
		if err != nil {
			if !errors.Is(err, trivet.ErrInvalid) {
				t.Fatalf("error %v is of no kind", err)
			}
			return
		}
		r.Local = testServer
		_, _, _, _ = r.Class(), r.Archs(), r.IPXE(), r.UserClasses()
		_, _, _, _ = r.HostName(), r.Link(), r.Phase(), r.LoadHash()
		reply := fixed(t.Context(), r)
		if reply == nil {
			return
		}
		out, _, err := reply.encode(nil, r)
		if err != nil {
			if !errors.Is(err, trivet.ErrTooLarge) {
				t.Fatal(err)
			}
			return
		}
		if len(out) > r.room() || len(out) < minSend {
			t.Fatalf("answer of %d bytes, room for %d", len(out), r.room())
		}
		reply.route(r)
		readAnswer(t, out)
	})
}
