package heads_test

import (
	"errors"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

// Three heads grow out of one. Each may be restarted or killed while the others go on; one alone serves reads and boots; all
// killed at once come back with all that was acknowledged.
func TestThreeHeads(t *testing.T) {
	h0 := newHead(t, "head0")
	h0.up()
	l := newLedger(t, h0.asks(patience, h0))
	l.write()
	h1 := h0.join("head1")
	h2 := h0.join("head2")
	all := []*head{h0, h1, h2}
	l.cl = h0.asks(patience, all...)
	for _, h := range all {
		l.read(h0.asks(patience, h))
		h.boots()
		h.must("get", "tokens") // root on each is an operator
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
	l.lone(h0, h2)

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

// lone wants a head that answers reads as it knows, and refuses a write before it has said anything of it to anybody.
func (l *ledger) lone(admin, h *head) {
	h.Helper()
	machines := client.Of[trivet.Machine](admin.asks(-1, h))
	if _, err := machines.Get(h.Context(), machine); err != nil {
		h.Errorf("%s alone: a read: %v", h.name, err)
	}
	_, err := machines.Patch(h.Context(), machine, []byte(`{"labels":{"lone":"yes"}}`), 0)
	if !errors.Is(err, trivet.ErrUnavailable) || errors.Is(err, trivet.ErrUnknown) {
		h.Errorf("%s alone, asked to write: %v", h.name, err)
	}
}
