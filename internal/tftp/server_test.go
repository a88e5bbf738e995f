package tftp

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/netip"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/trivet-project/trivet/internal/limit"
)

func TestRefusals(t *testing.T) {
	server := serve(t, &Server{Open: files(nil)}, "127.0.0.1:0")
	for name, c := range map[string]struct {
		packet string
		want   Code
	}{
		"write":     {"\x00\x02f\x00octet\x00", CodeAccess},
		"netascii":  {"\x00\x01f\x00netascii\x00", CodeIllegal},
		"no mode":   {"\x00\x01f\x00", CodeIllegal},
		"no name":   {"\x00\x01\x00octet\x00", CodeIllegal},
		"no NUL":    {"\x00\x01f", CodeIllegal},
		"empty":     {"\x00\x01", CodeIllegal},
		"long name": {"\x00\x01" + string(bytes.Repeat([]byte("x"), 256)) + "\x00octet\x00", CodeIllegal},
		"too long":  {"\x00\x01" + string(bytes.Repeat([]byte("x"), 4000)) + "\x00octet\x00", CodeIllegal},
		"not there": {"\x00\x01f\x00OCTET\x00", CodeNotFound},
	} {
		p := newPeer(t)
		p.send(server.addr, []byte(c.packet))
		if e := p.refusal(); e.Code != c.want {
			t.Errorf("%s: got %v, want code %d", name, e, c.want)
		}
	}
}

// What is not a request is never answered: two servers would answer each other forever.
func TestStrayPacketsAreIgnored(t *testing.T) {
	m := NewMetrics(prometheus.NewRegistry())
	server := serve(t, &Server{Open: files(map[string][]byte{"f": nil}), Metrics: m}, "127.0.0.1:0")
	p := newPeer(t)
	stray := []string{"", "\x00", "\x00\x00", "\x00\x03\x00\x01data", "\x00\x04\x00\x01", "\x00\x05\x00\x01no\x00",
		"\x00\x06tsize\x000\x00", "\xff\xff"}
	for _, b := range stray {
		p.send(server.addr, []byte(b))
	}
	p.send(server.addr, request{name: "f"}.append(nil))
	if got := p.block(); got != 1 { // the first packet that is returned
		t.Fatalf("got block %d", got)
	}
	if got := count(m.dropped.WithLabelValues("not_a_request")); got != float64(len(stray)) {
		t.Fatalf("%v dropped, want %d", got, len(stray))
	}
}

// One transfer too many replaces the oldest whose peer has acknowledged nothing: its address may be forged. Those that
// made progress stay.
func TestLimits(t *testing.T) {
	m := NewMetrics(prometheus.NewRegistry())
	server := serve(t, &Server{Open: files(map[string][]byte{"f": pattern(1200)}), Metrics: m,
		Limits: limit.NewSet(limit.Limits{Unknown: 2, PerAddress: 2, Known: 1, KnownPerAddress: 1})}, "127.0.0.1:0")
	peers := []*peer{newPeer(t), newPeer(t), newPeer(t), newPeer(t)}
	ask := request{name: "f"}.append(nil)
	for _, p := range peers[:2] {
		p.send(server.addr, ask)
		p.block()
	}
	peers[0].send(server.addr, ask) // sent again: its transfer runs
	peers[0].ack(1)
	if got := peers[0].block(); got != 2 {
		t.Fatalf("got block %d", got)
	}
	peers[2].send(server.addr, ask)
	peers[2].block()
	peers[3].send(server.addr, ask) // one too many
	peers[3].block()
	if r := <-server.results; r.Peer.Port() != peers[1].address().Port() || !errors.Is(r.Err, errReplaced) {
		t.Errorf("%+v ended", r)
	}
	peers[0].ack(2)
	if got := peers[0].block(); got != 3 {
		t.Fatalf("got block %d", got)
	}
	peers[0].ack(3)
	if r := <-server.results; r.Err != nil {
		t.Errorf("%+v ended", r)
	}
	if got := count(m.dropped.WithLabelValues("repeated")); got != 1 {
		t.Errorf("%v dropped as repeated", got)
	}
}

// A server on all addresses answers from the destination of the request, and does not answer a broadcast.
func TestAnswersFromTheDestination(t *testing.T) {
	m := NewMetrics(prometheus.NewRegistry())
	server := serve(t, &Server{Open: files(map[string][]byte{"f": pattern(600)}), Metrics: m}, "0.0.0.0:0")
	port := server.addr.Port()
	for _, addr := range []string{"127.0.0.1", "127.9.8.7"} {
		at := netip.AddrPortFrom(netip.MustParseAddr(addr), port)
		if _, err := get(t.Context(), at, "f", io.Discard, Options{}); err != nil {
			t.Fatal(err)
		}
		<-server.results
	}
	p := newPeer(t)
	ask := request{name: "f"}.append(nil)
	if err := allowBroadcast(p.conn); err != nil {
		t.Fatal(err)
	}
	p.send(netip.AddrPortFrom(netip.MustParseAddr("127.255.255.255"), port), ask)
	p.send(netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port), ask)
	p.block()
	if got := count(m.dropped.WithLabelValues("broadcast")); got != 1 {
		t.Fatalf("%v dropped as broadcast", got)
	}
}

func TestGetEndsWithContext(t *testing.T) {
	p := newPeer(t) // a server that never answers
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		_, err := get(ctx, p.address(), "f", io.Discard,
			Options{})
		ended <- err
	}()
	p.recv()
	cancel()
	if err := <-ended; err == nil {
		t.Fatal("no error")
	}
}
