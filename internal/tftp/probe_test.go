package tftp

import (
	"errors"
	"net"
	"net/netip"
	"testing"

	"github.com/trivet-project/trivet"
)

// A probe reads the first block and ends the transfer; a refusal and a server that does not answer are errors.
func TestProbe(t *testing.T) {
	r := serve(t, &Server{Open: files(map[string][]byte{"large": pattern(100 << 10), "small": pattern(10)})},
		"127.0.0.1:0")
	from := netip.MustParseAddr("127.0.0.1")
	for _, name := range []string{"large", "small"} {
		if err := Probe(t.Context(), from, r.addr, name); err != nil {
			t.Error(err)
		}
		result := <-r.results
		if result.Name != name || result.Resent > 0 || result.Acked > defaultBlock {
			t.Errorf("the server sees %+v", result)
		}
	}
	var refused *PeerError
	if err := Probe(t.Context(), from, r.addr, "missing"); !errors.As(err, &refused) || refused.Code != CodeNotFound {
		t.Errorf("a missing file: %v", err)
	}
	r.stop()
	if err := Probe(t.Context(), from, r.addr, "small"); err == nil {
		t.Error("a server that has stopped answered")
	}
	silent := newPeer(t) // it receives, and does not answer
	if err := Probe(t.Context(), from, silent.conn.LocalAddr().(*net.UDPAddr).AddrPort(), "small"); !errors.Is(err, trivet.ErrUnavailable) {
		t.Errorf("a silent server: %v", err)
	}
}
