package dhcp

import (
	"context"
	"net"
	"net/netip"
	"testing"
	"time"
)

// A Handler that waits delays no other packet while a worker is free, and otherwise only until one is.
func TestYield(t *testing.T) {
	waiting, release := make(chan struct{}), make(chan struct{})
	s := start(t, Config{Address: netip.MustParseAddrPort("127.0.0.1:0"), Workers: 3,
		Handler: HandlerFunc(func(ctx context.Context, r *Packet) *Reply {
			if r.MAC()[0] == 0xee {
				r.Yield()
				r.Yield() // once is enough
				waiting <- struct{}{}
				<-release
			}
			return fixed(ctx, r)
		})})
	server := net.UDPAddrFromAddrPort(s.Addrs()[0])
	slow := make(chan error)
	wait := func(addr string) {
		conn, c := relayed(t, addr)
		c.MAC = net.HardwareAddr{0xee, 0, 0, 0, 0, 1}
		go func() {
			_, err := Exchange(t.Context(), conn, server, c)
			slow <- err
		}()
		<-waiting
	}
	wait("127.4.0.1")
	wait("127.4.0.2")
	conn, c := relayed(t, "127.4.0.3")
	if _, err := Exchange(t.Context(), conn, server, c); err != nil {
		t.Fatal(err)
	}
	wait("127.4.0.4") // the last worker
	c.Timeout, c.Attempts = time.Millisecond, 3
	if lease, err := Exchange(t.Context(), conn, server, c); err == nil {
		t.Fatalf("got %+v without a worker", lease)
	}
	go func() {
		for range waiting { // their DHCPREQUESTs
		}
	}()
	close(release)
	for range 3 {
		if err := <-slow; err != nil {
			t.Error(err)
		}
	}
	c.Timeout, c.Attempts = 5*time.Second, 2
	if _, err := Exchange(t.Context(), conn, server, c); err != nil {
		t.Fatal(err)
	}
	s.stop()
	close(waiting)
}
