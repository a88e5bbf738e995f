package dhcp

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"
)

// A Handler that waits delays no other packet. Where too many would wait, it must not.
func TestYield(t *testing.T) {
	waiting, release, refused := make(chan struct{}), make(chan struct{}), make(chan struct{}, 1)
	s := start(t, Config{Address: netip.MustParseAddrPort("127.0.0.1:0"), Workers: 3,
		Handler: HandlerFunc(func(ctx context.Context, r *Packet) *Reply {
			if r.MAC()[0] == 0xee {
				for range 2 { // once is enough
					if !r.Yield() {
						select {
						case refused <- struct{}{}:
						default:
						}
						return nil
					}
				}
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
	busy, b := relayed(t, "127.4.0.4")
	b.MAC = net.HardwareAddr{0xee, 0, 0, 0, 0, 2}
	b.Timeout, b.Attempts = time.Millisecond, 3
	if lease, err := Exchange(t.Context(), busy, server, b); err == nil {
		t.Fatalf("got %+v without a worker", lease)
	}
	<-refused // a busy computer may read its packets after it has given up
	if _, err := Exchange(t.Context(), conn, server, c); err != nil {
		t.Errorf("a client beside them, whose answer needs no wait: %v", err)
	}
	go func() {
		for range waiting { // their DHCPREQUESTs
		}
	}()
	close(release)
	for range 2 {
		if err := <-slow; err != nil {
			t.Error(err)
		}
	}
	s.stop()
	close(waiting)
}

// A worker that has answered after a wait reads again when another one waits: a burst makes no worker for each packet.
func TestIdleWorkers(t *testing.T) {
	workers, packets := map[*worker]bool{}, 0
	var mu sync.Mutex
	s := start(t, Config{Address: netip.MustParseAddrPort("127.0.0.1:0"),
		Handler: HandlerFunc(func(ctx context.Context, r *Packet) *Reply {
			r.Yield()
			mu.Lock()
			defer mu.Unlock()
			workers[r.worker], packets = true, packets+1
			return fixed(ctx, r)
		})})
	conn, c := relayed(t, "127.4.1.1")
	for range 200 {
		if _, err := Exchange(t.Context(), conn, net.UDPAddrFromAddrPort(s.Addrs()[0]), c); err != nil {
			t.Fatal(err)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if len(workers) > packets/2 {
		t.Errorf("%d workers for %d packets, one after the other", len(workers), packets)
	}
}
