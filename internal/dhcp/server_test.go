package dhcp

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/trivet-project/trivet"
)

// relayed is a client on loopback that acts as its own relay.
func relayed(t testing.TB, addr string) (net.PacketConn, ClientConfig) {
	t.Helper()
	conn, err := net.ListenPacket("udp4", addr+":0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn, ClientConfig{MAC: testMAC, Relay: netip.MustParseAddr(addr), Timeout: 5 * time.Second, Attempts: 2}
}

func loopback(t testing.TB, h Handler) (served, net.Addr) {
	t.Helper()
	// One worker: what was sent first is counted first.
	s := start(t, Config{Handler: h, Address: netip.MustParseAddrPort("127.0.0.1:0"), Workers: 1,
		Metrics: NewMetrics(prometheus.NewRegistry())})
	return s, net.UDPAddrFromAddrPort(s.Addrs()[0])
}

// The client of a simulated machine needs no privilege and no interface.
func TestExchangeByRelayOnLoopback(t *testing.T) {
	s, server := loopback(t, HandlerFunc(fixed))
	conn, c := relayed(t, "127.3.0.7")
	lease, err := Exchange(t.Context(), conn, server, c)
	if err != nil {
		t.Fatal(err)
	}
	if lease.Address.String() != "10.99.0.50/24" || lease.Server.String() != "127.0.0.1" ||
		lease.BootFile != "boot.efi" ||
		lease.Time != time.Hour || lease.Domain != "lab" || len(lease.Routers) != 1 || lease.Routers[0] != testServer {
		t.Fatalf("lease %+v", lease)
	}
	again, err := Renew(t.Context(), conn, server, c, lease)
	if err != nil || again.Address != lease.Address {
		t.Fatalf("renewed %+v, %v", again, err)
	}
	s.answered(t, map[answer]int{{Offer, toRelay}: 1, {Ack, toRelay}: 2})
}

func TestNakIsReported(t *testing.T) {
	_, server := loopback(t, HandlerFunc(func(ctx context.Context, r *Packet) *Reply {
		if r.Type() == Discover {
			return fixed(ctx, r)
		}
		return &Reply{Type: Nak, Server: r.Local, Options: []Option{Text(OptMessage, "taken")}}
	}))
	conn, c := relayed(t, "127.3.0.8")
	if _, err := Exchange(t.Context(), conn, server, c); !errors.Is(err, ErrRefused) ||
		!strings.Contains(err.Error(), "taken") {
		t.Fatalf("error %v", err)
	}
}

// A client that asks for its old address again requests the one that it is offered.
func TestOfferedAddressIsRequested(t *testing.T) {
	packets := make(chan string, 100)
	_, server := loopback(t, HandlerFunc(func(ctx context.Context, r *Packet) *Reply {
		packets <- r.RequestedIP().String()
		return fixed(ctx, r)
	}))
	conn, c := relayed(t, "127.3.0.9")
	c.Options = []Option{Addrs(OptRequestedIP, netip.MustParseAddr("10.99.0.77"))}
	if _, err := Exchange(t.Context(), conn, server, c); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"10.99.0.77", "10.99.0.50"} {
		if got := <-packets; got != want {
			t.Fatalf("the client requested %s, want %s", got, want)
		}
	}
}

// A server that answers only clients that have tried for a while, as one that takes over from another: the client
// retransmits, with the elapsed time.
func TestClientRetransmits(t *testing.T) {
	tries := make(chan *Packet, 100)
	s, server := loopback(t, HandlerFunc(func(ctx context.Context, r *Packet) *Reply {
		if tries <- r; len(tries) < 3 {
			return nil
		}
		return fixed(ctx, r)
	}))
	conn, c := relayed(t, "127.3.0.9")
	c.Timeout, c.Attempts = time.Millisecond, 12
	if _, err := Exchange(t.Context(), conn, server, c); err != nil {
		t.Fatal(err)
	}
	first, second := <-tries, <-tries
	if first.XID() != second.XID() {
		t.Fatalf("%+v, then %+v", first, second)
	}
	s.stop()
	if got := count(s.Metrics.dropped.WithLabelValues(dropSilent)); got != 2 {
		t.Fatalf("%d times silent", got)
	}
}

func TestNoAnswer(t *testing.T) {
	conn, c := relayed(t, "127.3.0.10")
	silent, _ := relayed(t, "127.3.0.11")
	c.Timeout, c.Attempts = time.Millisecond, 3
	if _, err := Exchange(t.Context(), conn, silent.LocalAddr(), c); !errors.Is(err, trivet.ErrUnavailable) {
		t.Fatalf("error %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c.Timeout = time.Hour
	if _, err := Exchange(ctx, conn, silent.LocalAddr(), c); !errors.Is(err, context.Canceled) {
		t.Fatalf("error %v", err)
	}
}

func TestGarbageIsCounted(t *testing.T) {
	s, server := loopback(t, HandlerFunc(fixed))
	conn, c := relayed(t, "127.3.0.12")
	for _, b := range [][]byte{nil, {1}, make([]byte, 300), make([]byte, 5000)} {
		if _, err := conn.WriteTo(b, server); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Exchange(t.Context(), conn, server, c); err != nil {
		t.Fatal(err)
	}
	s.stop()
	if got := count(s.Metrics.dropped.WithLabelValues(dropMalformed)); got != 4 {
		t.Fatalf("%d malformed", got)
	}
}

// When all workers wait, packets queue in the kernel; those that exceed its buffer are dropped and counted.
func TestFullQueueIsCounted(t *testing.T) {
	release, busy := make(chan struct{}), make(chan struct{})
	s := start(t, Config{Address: netip.MustParseAddrPort("127.0.0.1:0"), Workers: 1,
		Handler: HandlerFunc(func(context.Context, *Packet) *Reply {
			select {
			case busy <- struct{}{}:
			case <-release:
			}
			<-release
			return nil
		})})
	conn, _ := relayed(t, "127.3.0.13")
	server := net.UDPAddrFromAddrPort(s.Addrs()[0])
	packet := clientPacket(t, Discover, nil)
	send := func() {
		if _, err := conn.WriteTo(packet, server); err != nil {
			t.Fatal(err)
		}
	}
	send()
	<-busy
	for range 20_000 {
		send()
	}
	close(release)
	for handled := 0; count(s.Metrics.missed) == 0; handled++ {
		send() // reported with a packet that is received after the loss
		if handled > 100_000 {
			t.Fatal("no packet was missed")
		}
	}
}

func TestListenErrors(t *testing.T) {
	s := start(t, Config{Handler: HandlerFunc(fixed), Address: netip.MustParseAddrPort("127.0.0.1:0")})
	for name, c := range map[string]struct {
		config Config
		want   error
	}{
		"taken":        {Config{Address: s.Addrs()[0]}, syscall.EADDRINUSE},
		"no interface": {Config{Interfaces: []string{"nosuch0"}}, syscall.ENODEV},
		"nothing":      {Config{}, trivet.ErrInvalid},
	} {
		if s, err := Listen(c.config); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, %v", name, s, err)
		}
	}
}

func TestBadReplyIsNotSent(t *testing.T) {
	s, server := loopback(t, HandlerFunc(func(ctx context.Context, r *Packet) *Reply {
		reply := fixed(ctx, r)
		if r.Elapsed() == 0 && r.XID()%2 == 0 {
			reply.Type = Discover
		}
		return reply
	}))
	conn, _ := relayed(t, "127.3.0.14")
	for xid := range byte(2) {
		b := clientPacket(t, Discover, func(b []byte) {
			b[7] = xid
			putAddr(b[atGiaddr:], netip.MustParseAddr("127.3.0.14"))
		},
			Option{OptRelay, []byte{RelaySourcePort, 0}})
		if _, err := conn.WriteTo(b, server); err != nil {
			t.Fatal(err)
		}
	}
	b := make([]byte, 2000)
	n, _, err := conn.ReadFrom(b)
	if err != nil || readAnswer(t, b[:n]).TransactionID[3] != 1 {
		t.Fatalf("%x, %v", b[:n], err)
	}
	s.stop()
	if got := count(s.Metrics.dropped.WithLabelValues(dropReply)); got != 1 {
		t.Fatalf("%d bad replies", got)
	}
}
