package heads_test

import (
	"errors"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

// Three heads grow out of one. Each may be restarted or killed while the others continue; one alone serves reads and
// boots; all killed at once return with all that was acknowledged.
func TestThreeHeads(t *testing.T) {
	t.Parallel()
	h0, l := startWithLedger(t)
	l.write()
	h1 := h0.join("head1")
	h2 := h0.join("head2")
	all := []*head{h0, h1, h2}
	l.cl = h0.client(all...)
	for _, h := range all {
		l.read(h0.client(h))
		h.MustBoot(knownMAC)
		h.MustTrivet("get", "tokens") // root on each host is an operator
	}
	for _, h := range all {
		for _, end := range []func(){h.Stop, h.Kill} {
			end()
			l.write()
			h.Up() // without --join: its identity is on its disk
			l.write()
		}
	}
	for _, h := range all {
		for _, other := range all {
			h0.awaitState(other.Name, "member", "leader")
		}
		h.MustBoot(knownMAC)
	}

	h0.Kill()
	h1.Kill()
	h2.Stop()
	h2.Up()
	h2.MustBoot(knownMAC)
	l.readsWithoutQuorum(h0, h2)

	h2.Kill()
	for _, h := range all {
		h.Start()
	}
	for _, h := range all {
		h.AwaitLog("msg=ready")
	}
	l.write()
	for _, h := range all {
		l.read(h0.client(h))
	}
}

// readsWithoutQuorum expects a head that answers reads from its copy, and refuses a write before it has proposed it to
// any member.
func (l *ledger) readsWithoutQuorum(admin, h *head) {
	h.Helper()
	machines := client.Of[trivet.Machine](admin.clientOnce(h))
	if _, err := machines.Get(h.Context(), machine); err != nil {
		h.Errorf("%s alone: a read: %v", h.Name, err)
	}
	_, err := machines.Patch(h.Context(), machine, []byte(`{"labels":{"lone":"yes"}}`), 0)
	if !errors.Is(err, trivet.ErrUnavailable) || errors.Is(err, trivet.ErrUnknown) {
		h.Errorf("%s alone, asked to write: %v", h.Name, err)
	}
}
