package dhcp

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

var (
	testMAC    = net.HardwareAddr{0x52, 0x54, 0, 1, 2, 3}
	testServer = netip.MustParseAddr("10.99.0.1")
	testAddr   = netip.MustParseAddr("10.99.0.50")
	testNet    = netip.MustParsePrefix("10.99.0.0/24")
)

// clientPacket writes a client's packet; change edits its bytes before the options.
func clientPacket(t testing.TB, kind Type, change func(b []byte), options ...Option) []byte {
	t.Helper()
	x, err := newExchange(nil, nil, ClientConfig{MAC: testMAC, Options: options})
	if err != nil {
		t.Fatal(err)
	}
	b := x.packet(kind, nil)
	if change != nil {
		change(b)
	}
	return b
}

func request(t testing.TB, kind Type, change func(b []byte), options ...Option) *Packet {
	t.Helper()
	r, err := parse(clientPacket(t, kind, change, options...))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func field(at int, addr string) func([]byte) {
	return func(b []byte) { putAddr(b[at:], netip.MustParseAddr(addr)) }
}

// fixed is a Handler that offers every client the same address.
func fixed(_ context.Context, r *Packet) *Reply {
	reply := &Reply{Server: r.Local, Address: testAddr, Lease: time.Hour, NextServer: r.Local, BootFile: "boot.efi"}
	switch r.Type() {
	case Discover:
		reply.Type = Offer
	case Request, Inform:
		reply.Type = Ack
		if r.RequestedIP().IsValid() && r.RequestedIP() != testAddr {
			return &Reply{Type: Nak, Server: r.Local, Options: []Option{Text(OptMessage, "not yours")}}
		}
	default:
		return nil
	}
	reply.Add(SubnetMask(testNet), Addrs(OptRouter, testServer), Addrs(OptDNS, testServer), Text(OptDomainName, "lab"))
	return reply
}

// served is a server under test. An answer is counted just after it is sent, so stop before counting.
type served struct {
	*Server
	stop func()
}

// start serves until the test ends.
func start(t testing.TB, c Config) served {
	t.Helper()
	s, err := Listen(c)
	if err != nil {
		t.Fatal(err)
	}
	return run(t, s)
}

func run(t testing.TB, s *Server) served {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx) }()
	stop := sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	t.Cleanup(stop)
	return served{s, stop}
}

// answered checks the paths of the answers, and that each DISCOVER and REQUEST had one. A client that times out on
// a busy computer retransmits, and is answered again by the same path.
func (s served) answered(t testing.TB, want map[answer]int) {
	t.Helper()
	s.stop()
	sent := map[Type]int{}
	for a, c := range s.Metrics.answers {
		got := count(c)
		if sent[a.Type] += got; got < want[a] || got > 0 && want[a] == 0 {
			t.Errorf("%d %s by %s, want %d", got, a.Type, a.path, want[a])
		}
	}
	if n := count(s.Metrics.received[Discover]); n != sent[Offer] {
		t.Errorf("%d answers to %d DISCOVER", sent[Offer], n)
	}
	if n := count(s.Metrics.received[Request]); n != sent[Ack]+sent[Nak] {
		t.Errorf("%d answers to %d REQUEST", sent[Ack]+sent[Nak], n)
	}
}

// count reads a counter.
func count(c prometheus.Counter) int {
	var m dto.Metric
	if err := c.Write(&m); err != nil {
		panic(err)
	}
	return int(m.GetCounter().GetValue())
}
