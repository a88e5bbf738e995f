package tftp

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"golang.org/x/sys/unix"

	"github.com/trivet-project/trivet/test/tftpclient"
)

// pattern creates a file whose blocks all differ.
func pattern(n int) []byte {
	b := make([]byte, 0, n+sha256.Size)
	for i := 0; len(b) < n; i++ {
		sum := sha256.Sum256([]byte{byte(i), byte(i >> 8), byte(i >> 16)})
		b = append(b, sum[:]...)
	}
	return b[:n]
}

// files is an Open over a map.
func files(m map[string][]byte) func(context.Context, string, netip.AddrPort) (File, int64, error) {
	return func(_ context.Context, name string, _ netip.AddrPort) (File, int64, error) {
		b, ok := m[name]
		if !ok {
			return nil, 0, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
		}
		return Bytes(b), int64(len(b)), nil
	}
}

// running is a server under test.
type running struct {
	addr    netip.AddrPort
	results chan Result
	stop    func() // ends it and waits
}

// serve runs s on a loopback port until the test ends.
func serve(t testing.TB, s *Server, listen string) running {
	t.Helper()
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort(listen)))
	if err != nil {
		t.Fatal(err)
	}
	r := running{addr: conn.LocalAddr().(*net.UDPAddr).AddrPort(), results: make(chan Result, 4096)}
	s.Done = func(result Result) { r.results <- result }
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, conn) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	t.Cleanup(r.stop)
	return r
}

// peer is a client that a test controls packet by packet.
type peer struct {
	t    testing.TB
	conn *net.UDPConn
	tid  netip.AddrPort // where the last packet came from
}

func newPeer(t testing.TB) *peer {
	t.Helper()
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &peer{t: t, conn: conn}
}

func (p *peer) send(to netip.AddrPort, b []byte) {
	p.t.Helper()
	if _, err := p.conn.WriteToUDPAddrPort(b, to); err != nil {
		p.t.Fatal(err)
	}
}

func (p *peer) ack(n int) {
	p.t.Helper()
	b := make([]byte, headerSize)
	putHeader(b, opAck, uint16(n))
	p.send(p.tid, b)
}

// recv returns the next packet.
func (p *peer) recv() []byte {
	p.t.Helper()
	b, ok := p.recvWithin(10 * time.Second)
	if !ok {
		p.t.Fatal("no packet received")
	}
	return b
}

func (p *peer) recvWithin(d time.Duration) ([]byte, bool) {
	b := make([]byte, 1<<16)
	p.conn.SetReadDeadline(time.Now().Add(d))
	n, from, err := p.conn.ReadFromUDPAddrPort(b)
	if err != nil {
		return nil, false
	}
	p.tid = from
	return b[:n], true
}

// block expects DATA and returns its number.
func (p *peer) block() int {
	p.t.Helper()
	b := p.recv()
	if operation(b) != opData {
		p.t.Fatalf("got operation %d, want DATA", operation(b))
	}
	n, _ := blockNumber(b)
	return int(n)
}

// refusal expects an ERROR.
func (p *peer) refusal() *PeerError {
	p.t.Helper()
	b := p.recv()
	if operation(b) != opError {
		p.t.Fatalf("got operation %d, want ERROR", operation(b))
	}
	return parseError(b)
}

func asPeerError(t *testing.T, err error, want Code) {
	t.Helper()
	var e *PeerError
	if !errors.As(err, &e) || e.Code != want {
		t.Fatalf("got error %v, want code %d from the peer", err, want)
	}
}

// asClientError checks the ERROR packet that the client received.
func asClientError(t *testing.T, err error, want Code) {
	t.Helper()
	var e *tftpclient.Error
	if !errors.As(err, &e) || Code(e.Code) != want {
		t.Fatalf("got error %v, want code %d from the server", err, want)
	}
}

// get reads a file by the client.
func get(ctx context.Context, server netip.AddrPort, name string, w io.Writer, o Options) (int64, error) {
	return tftpclient.Get(ctx, server, name, w, tftpclient.Options(o))
}

// getWithin reads a file by a client that waits so long for a packet.
func getWithin(ctx context.Context, server netip.AddrPort, name string, w io.Writer, o Options,
	wait time.Duration) (int64, error) {
	c := tftpclient.Client{Options: tftpclient.Options(o), Wait: wait, Retries: 200}
	return c.Get(ctx, server, name, w)
}

// append writes a request as a client does.
func (r request) append(b []byte) []byte {
	op := uint16(opRead)
	if r.write {
		op = opWrite
	}
	b = binary.BigEndian.AppendUint16(b, op)
	b = append(append(b, r.name...), 0)
	b = append(b, "octet\x00"...)
	return r.options.append(b)
}

func allowBroadcast(conn *net.UDPConn) error {
	return control(conn, func(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_BROADCAST, 1) })
}

// count reads a counter.
func count(c prometheus.Counter) float64 {
	var m dto.Metric
	if err := c.Write(&m); err != nil {
		panic(err)
	}
	return m.GetCounter().GetValue()
}

func (p *peer) address() netip.AddrPort { return p.conn.LocalAddr().(*net.UDPAddr).AddrPort() }
