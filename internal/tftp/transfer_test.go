package tftp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
)

func TestFilesArriveWhole(t *testing.T) {
	m := map[string][]byte{}
	for _, n := range []int{0, 1, 511, 512, 513, 1024, 65535, 65536, 65537, 1 << 20} {
		m[fmt.Sprint(n)] = pattern(n)
	}
	options := []Options{
		{},
		{WantSize: true},
		{BlockSize: 8, Window: 64},
		{BlockSize: 1468, WantSize: true},
		{BlockSize: 1468, Window: 4, Timeout: 2 * time.Second},
		{BlockSize: 8192, Window: 16},
		{BlockSize: 65464, Window: 2},
		{Window: 65535},
	}
	for _, listen := range []string{"127.0.0.1:0", "[::1]:0", "[::]:0"} {
		server := serve(t, &Server{Open: files(m)}, listen)
		if server.addr.Addr().IsUnspecified() {
			server.addr = netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), server.addr.Port())
		}
		for _, o := range options {
			for name, want := range m {
				var got bytes.Buffer
				n, err := get(t.Context(), server.addr, name, &got, o)
				if err != nil || n != int64(len(want)) || !bytes.Equal(got.Bytes(), want) {
					t.Fatalf("%s: %+v: got %d bytes, error %v", listen, o, n, err)
				}
				r := <-server.results
				if r.Err != nil || r.Name != name || r.Size != int64(len(want)) || r.Acked != r.Size {
					t.Fatalf("%s: %+v: result %+v", listen, o, r)
				}
			}
		}
	}
}

// The block number has 16 bits; here it wraps twice.
func TestBlockNumberRollsOver(t *testing.T) {
	want := pattern(8*(2<<16) + 5)
	server := serve(t, &Server{Open: files(map[string][]byte{"f": want})}, "127.0.0.1:0")
	var got bytes.Buffer
	if _, err := get(t.Context(), server.addr, "f", &got, Options{BlockSize: 8, Window: 64}); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Fatal("content differs")
	}
}

func TestOpenErrors(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "f"), []byte("here"), 0o600); err != nil {
		t.Fatal(err)
	}
	server := serve(t, &Server{Open: func(_ context.Context, name string, peer netip.AddrPort) (File, int64, error) {
		switch name {
		case "../f":
			f, err := os.Open(filepath.Join(dir, "f"))
			return f, 4, err
		case "secret":
			return nil, 0, fmt.Errorf("%s: %w", name, trivet.ErrForbidden)
		case "unknown":
			return nil, 0, fmt.Errorf("%s: %w", name, trivet.ErrNotFound)
		case "gone":
			return nil, 0, fs.ErrNotExist
		case "short": // the file has less than reported
			return Bytes(pattern(100)), 600, nil
		default:
			return nil, 0, errors.New("disk 3 of pool tank is on fire")
		}
	}}, "127.0.0.1:0")
	read := func(name string) (string, error) {
		var b bytes.Buffer
		_, err := get(t.Context(), server.addr, name, &b, Options{})
		return b.String(), err
	}
	if got, err := read("../f"); err != nil || got != "here" {
		t.Fatalf("got %q, %v", got, err)
	}
	_, err := read("secret")
	asClientError(t, err, CodeAccess)
	for _, name := range []string{"unknown", "gone"} {
		if _, err = read(name); !errors.Is(err, trivet.ErrNotFound) {
			t.Fatalf("%s: %v", name, err)
		}
	}
	_, err = read("fire")
	asClientError(t, err, CodeUndefined)
	if want := "server error"; !bytes.Contains([]byte(err.Error()), []byte(want)) {
		t.Fatalf("the peer received %v", err)
	}
	_, err = read("short")
	asClientError(t, err, CodeUndefined)
}

// RFC 1123 section 4.2.3.1: a doubled ACK must not double the DATA.
func TestSorcerersApprentice(t *testing.T) {
	const blocks = 20
	server := serve(t, &Server{Open: files(map[string][]byte{"f": pattern(512*blocks - 1)})}, "127.0.0.1:0")
	p := newPeer(t)
	p.send(server.addr, request{name: "f"}.append(nil))
	for want := 1; want <= blocks; want++ {
		if got := p.block(); got != want {
			t.Fatalf("got block %d, want %d", got, want)
		}
		p.ack(want - 1)
		p.ack(want)
		p.ack(want)
	}
	r := <-server.results
	if r.Err != nil || r.Resent != 0 {
		t.Fatalf("result %+v", r)
	}
}

// The same with a window: peers acknowledge every packet after a gap, so one window may be sent twice, not more.
func TestRepeatedAcksOfWindow(t *testing.T) {
	const window, blocks = 4, 16
	server := serve(t, &Server{Open: files(map[string][]byte{"f": pattern(512*blocks - 1)})}, "127.0.0.1:0")
	p := newPeer(t)
	p.send(server.addr, request{name: "f", options: Options{Window: window}}.append(nil))
	if op := operation(p.recv()); op != opOACK {
		t.Fatalf("got operation %d", op)
	}
	expect := func(from, to int) {
		t.Helper()
		for want := from; want <= to; want++ {
			if got := p.block(); got != want {
				t.Fatalf("got block %d, want %d", got, want)
			}
		}
	}
	p.ack(0)
	expect(1, 4)
	p.ack(0) // the first block was lost
	p.ack(0)
	p.ack(0)
	expect(1, 4) // once
	p.ack(4)
	expect(5, 8)
	p.ack(4) // just after a repetition these are echoes of it
	p.ack(4)
	p.ack(6)      // a gap after 6
	expect(7, 10) // goes on from there
	p.ack(6)      // for 9 and 10, of the window before
	p.ack(10)
	expect(11, 14)
	p.ack(14)
	expect(15, 16)
	p.ack(16)
	if r := <-server.results; r.Err != nil || r.Resent != 6 {
		t.Fatalf("result %+v", r)
	}
}

func TestPeerTimesOut(t *testing.T) {
	server := serve(t, &Server{Open: files(map[string][]byte{"f": pattern(600)}), Timeout: 2 * time.Millisecond,
		Retries: 3}, "127.0.0.1:0")
	p := newPeer(t)
	p.send(server.addr, request{name: "f"}.append(nil))
	for range 4 {
		if got := p.block(); got != 1 {
			t.Fatalf("got block %d", got)
		}
	}
	asked := p.refusal()
	if r := <-server.results; !errors.Is(r.Err, errTimeout) || r.Resent != 3 || asked.Code != CodeUndefined {
		t.Fatalf("result %+v, sent %v", r, asked)
	}
}

// A client that closes its port after the last block has the file; its ACK was lost.
func TestLastAckLost(t *testing.T) {
	server := serve(t, &Server{Open: files(map[string][]byte{"f": pattern(100)}), Timeout: 2 * time.Millisecond},
		"127.0.0.1:0")
	p := newPeer(t)
	p.send(server.addr, request{name: "f"}.append(nil))
	p.block()
	p.conn.Close()
	if r := <-server.results; r.Err != nil {
		t.Fatalf("result %+v", r)
	}
}

func TestServeEndsTransfers(t *testing.T) {
	server := serve(t, &Server{Open: files(map[string][]byte{"f": pattern(600)})}, "127.0.0.1:0")
	p := newPeer(t)
	p.send(server.addr, request{name: "f"}.append(nil))
	p.block()
	server.stop()
	if e := p.refusal(); e.Message != "server is stopping" {
		t.Fatalf("sent %v", e)
	}
	if r := <-server.results; !errors.Is(r.Err, errStopped) {
		t.Fatalf("result %+v", r)
	}
}

// PXE firmware asks for the size first and ends that transfer with an ERROR.
func TestPeerEndsAfterSize(t *testing.T) {
	server := serve(t, &Server{Open: files(map[string][]byte{"f": pattern(12345)})}, "127.0.0.1:0")
	p := newPeer(t)
	p.send(server.addr, request{name: "f", options: Options{WantSize: true}}.append(nil))
	b := p.recv()
	if o := parseOptions(b[2:]); operation(b) != opOACK || o != (Options{WantSize: true, Size: 12345}) {
		t.Fatalf("got %q", b)
	}
	p.send(p.tid, appendError(nil, CodeOption, "thanks"))
	r := <-server.results
	asPeerError(t, r.Err, CodeOption)
}
