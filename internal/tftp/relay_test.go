package tftp

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// delivery of a packet on a bad line.
type delivery int

const (
	pass delivery = iota
	drop
	double
)

// line is a bad line between one client and a server: judge returns the delivery of the n-th packet (from 0) each way.
type line struct {
	addr        netip.AddrPort // the server's address for the client
	front, back *net.UDPConn
	judge       func(toServer bool, n int) delivery
	done        sync.WaitGroup

	mu             sync.Mutex // guards following
	client, server netip.AddrPort
}

// lines counts the lines of all tests.
var lines atomic.Uint32

func newLine(t *testing.T, server netip.AddrPort, judge func(toServer bool, n int) delivery) *line {
	t.Helper()
	listen := func(ip net.IP) *net.UDPConn {
		c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: ip})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	// The server's side has an address of its own, where no other test's socket receives after it is closed.
	n := lines.Add(1)
	back := listen(net.IPv4(127, 69, byte(n>>8), byte(n)))
	l := &line{front: listen(net.IPv4(127, 0, 0, 1)), back: back, judge: judge, server: server}
	l.addr = l.front.LocalAddr().(*net.UDPAddr).AddrPort()
	l.done.Go(func() { l.carry(l.front, l.back, true) })
	l.done.Go(func() { l.carry(l.back, l.front, false) })
	return l
}

// close carries what was sent before, which an empty packet follows, and closes the ports.
func (l *line) close() {
	for _, c := range []*net.UDPConn{l.front, l.back} {
		_, _ = c.WriteTo(nil, c.LocalAddr())
	}
	l.done.Wait()
	l.front.Close()
	l.back.Close()
}

func (l *line) carry(in, out *net.UDPConn, toServer bool) {
	b := make([]byte, 1<<16)
	for n := 0; ; n++ {
		size, from, err := in.ReadFromUDPAddrPort(b)
		if err == nil && size == 0 {
			return
		}
		if err != nil {
			continue
		}
		l.mu.Lock()
		to := l.client
		if toServer {
			l.client, to = from, l.server
		} else {
			l.server = from // the transfer's own port from now on
		}
		l.mu.Unlock()
		for range map[delivery]int{pass: 1, double: 2}[l.judge(toServer, n)] {
			_, _ = out.WriteToUDPAddrPort(b[:size], to)
		}
	}
}

// Each single packet of a transfer is lost, and each doubled, both ways: the file still arrives, and no more than one
// window per fault is sent again. A lost request makes the client ask again, from the same port. All transfers run at
// once, so that a timeout may be longer than a busy computer delays a packet.
func TestEverySingleFault(t *testing.T) {
	const blocks = 9
	want := pattern(512*blocks - 100)
	var all sync.WaitGroup
	for _, o := range []Options{{}, {WantSize: true}, {Window: 4}} {
		for _, toServer := range []bool{true, false} {
			for nth := range blocks + 2 {
				for _, f := range []delivery{drop, double} {
					name := fmt.Sprintf("%+v, packet %d, to server %t, delivery %d", o, nth, toServer, f)
					server := serve(t, &Server{Open: files(map[string][]byte{"f": want}), Timeout: time.Second},
						"127.0.0.1:0")
					l := newLine(t, server.addr, func(to bool, n int) delivery {
						if to == toServer && n == nth {
							return f
						}
						return pass
					})
					all.Go(func() {
						var got bytes.Buffer
						_, err := getWithin(t.Context(), l.addr, "f", &got, o, 1200*time.Millisecond)
						if err != nil || !bytes.Equal(got.Bytes(), want) {
							t.Errorf("%s: %v, %d bytes", name, err, got.Len())
							return
						}
						l.close()
						if r := <-server.results; r.Err != nil || r.Resent > 2*o.window() {
							t.Errorf("%s: result %+v", name, r)
						}
					})
				}
			}
		}
	}
	all.Wait()
}

// A line that loses one packet in seven each way, at random: with a fixed period the same block of each window may be
// lost every time that it is sent.
func TestLossyLine(t *testing.T) {
	want := pattern(100_000)
	server := serve(t, &Server{Open: files(map[string][]byte{"f": want}), Timeout: 10 * time.Millisecond, Retries: 50},
		"127.0.0.1:0")
	for _, window := range []int{1, 8, 64} {
		l := newLine(t, server.addr, func(bool, int) delivery {
			if rand.N(7) == 0 {
				return drop
			}
			return pass
		})
		var got bytes.Buffer
		o := Options{BlockSize: 1000, Window: window}
		if _, err := getWithin(t.Context(), l.addr, "f", &got, o, 15*time.Millisecond); err != nil {
			t.Fatalf("window %d: %v", window, err)
		}
		if !bytes.Equal(got.Bytes(), want) {
			t.Fatalf("window %d: content differs", window)
		}
		l.close()
		if r := <-server.results; r.Err != nil {
			t.Fatalf("window %d: %+v", window, r)
		}
	}
}

// A packet from another port neither disturbs the transfer nor ends it, and is answered by an ERROR.
func TestPacketFromAnotherPort(t *testing.T) {
	p, other := newPeer(t), newPeer(t)
	server := p.address()
	ended := make(chan error)
	var got bytes.Buffer
	go func() {
		_, err := get(t.Context(), server, "f", &got, Options{})
		ended <- err
	}()
	p.recv()
	data := func(block uint16, text string) []byte {
		b := make([]byte, headerSize)
		putHeader(b, opData, block)
		return append(b, text...)
	}
	full := string(pattern(512))
	p.send(p.tid, data(1, full))
	p.recv() // its ACK
	other.send(p.tid, data(2, "false"))
	if e := other.refusal(); e.Code != CodeUnknownTID {
		t.Fatalf("the other port received %v", e)
	}
	p.send(p.tid, data(2, "true"))
	if err := <-ended; err != nil || got.String() != full+"true" {
		t.Fatalf("got %d bytes, %v", got.Len(), err)
	}
}

// A client that asks again from another port begins another transfer; the first is left to time out.
func TestClientChangesPort(t *testing.T) {
	want := pattern(1000)
	server := serve(t, &Server{Open: files(map[string][]byte{"f": want}), Timeout: 500 * time.Millisecond, Retries: 1},
		"127.0.0.1:0")
	old := newPeer(t)
	old.send(server.addr, request{name: "f"}.append(nil))
	old.block()
	var got bytes.Buffer
	if _, err := get(t.Context(), server.addr, "f", &got, Options{}); err != nil || !bytes.Equal(got.Bytes(), want) {
		t.Fatalf("got %d bytes, %v", got.Len(), err)
	}
	ends := map[bool]int{}
	for range 2 {
		r := <-server.results
		ends[r.Err == nil]++
	}
	if ends[true] != 1 || ends[false] != 1 {
		t.Fatalf("ends %v", ends)
	}
}
