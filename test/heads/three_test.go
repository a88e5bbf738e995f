package heads_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

// Three heads grow out of one. Each may be restarted or killed while the others go on; one alone serves reads and boots; all
// killed at once come back with all that was acknowledged.
func TestThreeHeads(t *testing.T) {
	h0 := newHead(t, "head0")
	h0.up()
	file := filepath.Join(t.TempDir(), "network.yaml")
	if err := os.WriteFile(file, []byte(network), 0o600); err != nil {
		t.Fatal(err)
	}
	h0.must("apply", "-f", file)
	l := newLedger(t, h0.asks(patience, h0))
	l.write()
	h1 := h0.join("head1")
	h2 := h0.join("head2")
	all := []*head{h0, h1, h2}
	l.cl = h0.asks(patience, all...)
	for _, h := range all {
		l.read(h0.asks(patience, h))
		h.boots()
	}
	for _, h := range all {
		for _, end := range []func(){h.stop, h.kill} {
			end()
			l.write()
			h.up() // without --join: it knows who it is
			l.write()
		}
	}
	for _, h := range all {
		for _, other := range all {
			h0.sees(other.name, "member", "leader")
		}
		h.boots()
	}

	h0.kill()
	h1.kill()
	h2.stop()
	h2.up()
	h2.boots()
	h2.readsOnly(h0, l)

	h2.kill()
	for _, h := range all {
		h.start()
	}
	for _, h := range all {
		h.says("msg=ready")
	}
	l.write()
	for _, h := range all {
		l.read(h0.asks(patience, h))
	}
}

// readsOnly wants a head that answers reads, and refuses a write with what to do.
func (h *head) readsOnly(admin *head, l *ledger) {
	h.Helper()
	cl := admin.asks(-1, h)
	l.read(cl)
	_, err := client.Of[trivet.Machine](cl).Patch(h.Context(), machine, []byte(`{"labels":{"lone":"yes"}}`), 0)
	if !errors.Is(err, trivet.ErrUnavailable) && !errors.Is(err, trivet.ErrUnknown) {
		h.Errorf("%s alone takes a write: %v", h.name, err)
	}
}
