package dhcp

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"testing"

	"github.com/trivet-project/trivet"
)

// A probe gets an offer without an address, at a port of its own, from the server that it asked.
func TestProbe(t *testing.T) {
	local := netip.MustParseAddr("127.0.0.1")
	var probes int
	server, err := Listen(Config{Address: netip.AddrPortFrom(local, 0),
		Handler: HandlerFunc(func(_ context.Context, r *Packet) *Reply {
			if !r.IsProbe() || r.Type() != Discover || r.Class() != PXEClient || r.Relay() != local {
				return nil
			}
			if probes++; probes == 1 {
				return nil // the first packet is lost
			}
			return &Reply{Type: Offer, Server: r.Local, Class: PXEClient, BootFile: "snponly.efi", NextServer: r.Local}
		})})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- server.Serve(ctx) }()
	lease, err := Probe(t.Context(), local, server.Addrs()[0])
	if err != nil || lease.BootFile != "snponly.efi" || lease.Address.IsValid() || lease.Server != local {
		t.Errorf("%+v, %v", lease, err)
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if _, err := Probe(t.Context(), local, server.Addrs()[0]); err == nil {
		t.Error("a server that has stopped answered")
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Probe(cancelled, local, netip.AddrPortFrom(local, 9)); !errors.Is(err, context.Canceled) &&
		!errors.Is(err, trivet.ErrUnavailable) {
		t.Errorf("cancelled: %v", err)
	}
}

// Only the MAC and the class together are those of a probe.
func TestIsProbe(t *testing.T) {
	mac, err := net.ParseMAC(ProbeMAC)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		mac   net.HardwareAddr
		class string
		want  bool
	}{
		{mac, probeClass, true}, {mac, "iPXE", false}, {testMAC, probeClass, false}, {mac, "", false},
	} {
		p := request(t, Discover, func(b []byte) { copy(b[atChaddr:], c.mac) }, Text(OptUserClass, c.class))
		if p.IsProbe() != c.want {
			t.Errorf("%+v: %v", c, !c.want)
		}
	}
}
