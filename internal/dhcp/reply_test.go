package dhcp

import (
	"bytes"
	"errors"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/trivet-project/trivet"
)

// readAnswer parses an answer by the library.
func readAnswer(t *testing.T, b []byte) *dhcpv4.DHCPv4 {
	t.Helper()
	p, err := dhcpv4.FromBytes(b)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func encode(t *testing.T, reply *Reply, r *Packet) (*dhcpv4.DHCPv4, int) {
	t.Helper()
	b, left, err := reply.encode(nil, r)
	if err != nil {
		t.Fatal(err)
	}
	return readAnswer(t, b), left
}

// The whole of a PXE offer, byte for byte what the firmware sees, in the library's words.
func TestOffer(t *testing.T) {
	r := request(t, Discover, func(b []byte) { b[atFlags] = 0x80; copy(b[4:], "\x01\x02\x03\x04") },
		Text(OptClass, "PXEClient:Arch:00007:UNDI:003000"), Option{OptClientID, []byte{0, 1, 2}},
		Option{OptUUID, make([]byte, 17)})
	reply := &Reply{Type: Offer, Server: testServer, Address: testAddr, Lease: 24 * time.Hour, NextServer: testServer,
		BootFile: "ipxe.efi", Class: r.Class()}
	reply.Add(SubnetMask(testNet), Addrs(OptRouter, testServer), SkipDiscovery(), Text(OptTFTPServer, "10.99.0.1"))
	p, left := encode(t, reply, r)
	golden, err := os.ReadFile("testdata/offer.txt")
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for line := range strings.Lines(p.Summary()) {
		got.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	if got.String() != string(golden) || left != 0 {
		t.Fatalf("%d options left out; got\n%s", left, got.String())
	}
}

func TestNakHasNoAddress(t *testing.T) {
	r := request(t, Request, field(atGiaddr, "10.1.0.1"), Option{OptClientID, []byte{0, 1}})
	reply := &Reply{Type: Nak, Server: testServer, Address: testAddr, Lease: time.Hour, BootFile: "f",
		NextServer: testServer,
		Options:    []Option{Text(OptMessage, "wrong network")}}
	p, _ := encode(t, reply, r)
	if !p.YourIPAddr.IsUnspecified() || !p.ServerIPAddr.IsUnspecified() || p.BootFileName != "" || !p.IsBroadcast() ||
		len(p.Options) != 4 || p.Message() != "wrong network" || len(p.Options[OptClientID]) != 2 {
		t.Fatal(p.Summary())
	}
}

func TestServerIDOverride(t *testing.T) {
	relay := []byte{11, 4, 10, 1, 0, 1}
	r := request(t, Discover, field(atGiaddr, "10.1.0.1"), Option{OptRelay, relay})
	b, _, err := (&Reply{Type: Offer, Server: testServer, Address: testAddr}).encode(nil, r)
	if err != nil {
		t.Fatal(err)
	}
	p := readAnswer(t, b)
	if p.ServerIdentifier().String() != "10.1.0.1" || !bytes.Equal(p.Options[OptRelay], relay) {
		t.Fatal(p.Summary())
	}
	last := append([]byte{OptRelay, byte(len(relay))}, append(relay, 255)...)
	if !bytes.HasSuffix(bytes.TrimRight(b, "\x00"), last) {
		t.Fatalf("option 82 is not the last: %x", b)
	}
}

// What does not fit is left out from the end; what is echoed always fits.
func TestMaximumMessageSize(t *testing.T) {
	r := request(t, Discover, nil, Option{OptClientID, bytes.Repeat([]byte{7}, 100)})
	delete(r.packet.Options, OptMaxSize)
	reply := &Reply{Type: Offer, Server: testServer, Address: testAddr,
		BootFile: "http://[::1]/" + strings.Repeat("x", 130)}
	reply.Add(SubnetMask(testNet), Text(OptDomainName, strings.Repeat("d", 90)), Addrs(OptRouter, testServer))
	p, left := encode(t, reply, r)
	if left != 1 || len(p.Router()) != 1 || p.SubnetMask() == nil || len(p.Options[OptClientID]) != 100 ||
		p.BootFileName != "" ||
		p.BootFileNameOption() != reply.BootFile {
		t.Fatalf("%d left out: %s", left, p.Summary())
	}
	r.packet.Options[OptMaxSize] = []byte{5, 0}
	if _, left = encode(t, reply, r); left != 0 {
		t.Fatalf("%d left out of 1280 bytes", left)
	}
	r.packet.Options[OptRelay] = bytes.Repeat([]byte{1, 0}, 600)
	if _, _, err := reply.encode(nil, r); !errors.Is(err, trivet.ErrTooLarge) {
		t.Fatalf("error %v", err)
	}
}

// Options over 255 bytes are split, RFC 3396.
func TestLongOption(t *testing.T) {
	r := request(t, Discover, nil)
	reply := &Reply{Type: Offer, Server: testServer}
	reply.Add(Text(OptRouter, strings.Repeat("0123", 150)))
	if p, left := encode(t, reply, r); left != 0 || len(p.Options[OptRouter]) != 600 {
		t.Fatal(p.Summary())
	}
}

func TestRoutes(t *testing.T) {
	mac := func(b []byte) { b[2] = 8 } // InfiniBand and the like
	relayPort := Option{OptRelay, []byte{RelaySourcePort, 0}}
	from := netip.MustParseAddrPort("10.1.0.1:40000")
	ack := &Reply{Type: Ack, Address: testAddr}
	for name, c := range map[string]struct {
		r     *Packet
		reply *Reply
		port  uint16
		want  string
	}{
		"relay": {request(t, Discover, field(atGiaddr, "10.1.0.1")), ack, 67, "relay 10.1.0.1:67"},
		"relay's port": {request(t, Discover, field(atGiaddr, "10.1.0.1"), relayPort), ack, 67,
			"relay 10.1.0.1:40000"},
		"nak by relay": {request(t, Request, field(atGiaddr, "10.1.0.1")), &Reply{Type: Nak}, 67,
			"relay 10.1.0.1:67"},
		"nak": {request(t, Request, field(atCiaddr, "10.1.0.9")), &Reply{Type: Nak}, 67,
			"broadcast 255.255.255.255:68"},
		"renewal": {request(t, Request, field(atCiaddr, "10.1.0.9")), ack, 67, "unicast 10.1.0.9:68"},
		"broadcast flag": {request(t, Request, func(b []byte) { b[atFlags] = 0x80 }), ack, 67,
			"broadcast 255.255.255.255:68"},
		"new client":    {request(t, Request, nil), ack, 67, "frame 10.99.0.50:68"},
		"proxy's offer": {request(t, Discover, nil), &Reply{Type: Offer}, 67, "broadcast 255.255.255.255:68"},
		"long MAC":      {request(t, Request, mac), ack, 67, "broadcast 255.255.255.255:68"},
		"boot server": {request(t, Request, field(atCiaddr, "10.1.0.9")), &Reply{Type: Ack}, 4011,
			"unicast 10.1.0.1:40000"},
		"boot server relay": {request(t, Request, field(atGiaddr, "10.1.0.1")), &Reply{Type: Ack}, 4011,
			"relay 10.1.0.1:67"},
	} {
		c.r.From, c.r.Port = from, c.port
		if way, to := c.reply.route(c.r); string(way)+" "+to.String() != c.want {
			t.Errorf("%s: %s %s, want %s", name, way, to, c.want)
		}
	}
}

func TestSubnetMask(t *testing.T) {
	for bits, want := range map[int]string{0: "0.0.0.0", 8: "255.0.0.0", 25: "255.255.255.128", 32: "255.255.255.255"} {
		got := SubnetMask(netip.PrefixFrom(testAddr, bits)).Value
		if a, _ := netip.AddrFromSlice(got); a.String() != want || bits > 0 && maskLength(got) != bits {
			t.Errorf("/%d: %s, back %d", bits, a, maskLength(got))
		}
	}
}
