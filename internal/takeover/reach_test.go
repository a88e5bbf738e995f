package takeover

import (
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
)

func writeFile(path, text string) error { return os.WriteFile(path, []byte(text), 0o600) }

func TestEcho(t *testing.T) {
	if err := Echo(t.Context(), netip.MustParseAddr("127.0.0.99")); err != nil {
		t.Errorf("a host that responds: %v", err)
	}
	if err := Echo(t.Context(), netip.MustParseAddr("127.0.0.1")); err == nil || !strings.Contains(err.Error(), "itself") {
		t.Errorf("an address of this host: %v", err)
	}
}

func TestIsReply(t *testing.T) {
	host := netip.MustParseAddr("10.0.0.1")
	packet := func(kind icmp.Type, id, seq int) []byte {
		m := icmp.Message{Type: kind, Body: &icmp.Echo{ID: id, Seq: seq}}
		text, err := m.Marshal(nil)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	from := &net.IPAddr{IP: net.IPv4(10, 0, 0, 1)}
	good := packet(ipv4.ICMPTypeEchoReply, 7, 3)
	if !isReply(good, from, host, 7, 3) {
		t.Error("a reply is refused")
	}
	for what, got := range map[string]bool{
		"of another host":    isReply(good, &net.IPAddr{IP: net.IPv4(10, 0, 0, 2)}, host, 7, 3),
		"of another process": isReply(packet(ipv4.ICMPTypeEchoReply, 8, 3), from, host, 7, 3),
		"of another request": isReply(packet(ipv4.ICMPTypeEchoReply, 7, 2), from, host, 7, 3),
		"a request":          isReply(packet(ipv4.ICMPTypeEcho, 7, 3), from, host, 7, 3),
		"empty":              isReply(nil, from, host, 7, 3),
		"cut":                isReply(good[:5], from, host, 7, 3),
		"no address":         isReply(good, &net.UDPAddr{}, host, 7, 3),
	} {
		if got {
			t.Errorf("a packet is accepted that is %s", what)
		}
	}
}
