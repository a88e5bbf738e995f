package dhcp

import (
	"net/netip"
	"testing"
)

// Each search is by another client, whose MAC is of one host and locally administered.
func TestNewMAC(t *testing.T) {
	last := newMAC()
	for range 1000 {
		mac := newMAC()
		if len(mac) != 6 || mac[0]&3 != 2 || mac.String() == last.String() {
			t.Fatalf("%s after %s", mac, last)
		}
		last = mac
	}
}

// The payload of a packet is returned only where all of it arrived.
func TestUDPPayload(t *testing.T) {
	from, to := netip.MustParseAddrPort("10.0.0.1:67"), netip.MustParseAddrPort("10.0.0.2:68")
	whole := appendUDP(nil, from, to, []byte("offer"))
	if got := string(udpPayload(whole)); got != "offer" {
		t.Errorf("%q", got)
	}
	for n := range whole {
		if got := udpPayload(whole[:n]); got != nil {
			t.Errorf("%d of %d bytes: %q", n, len(whole), got)
		}
	}
	for at := range 28 {
		for _, value := range []byte{0, 1, 0x7f, 0xff} {
			bad := append([]byte(nil), whole...)
			bad[at] = value
			udpPayload(bad) // must not panic
		}
	}
}
