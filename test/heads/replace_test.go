package heads_test

import (
	"fmt"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

// Where both full heads beside a witness are replaced at once, the second one stays until the first one's successor counts. The
// witness is never left alone.
func TestBothAreReplaced(t *testing.T) {
	h0 := newHead(t, "head0")
	h0.up()
	l := newLedger(t, h0.asks(patience, h0))
	h1 := h0.join("head1")
	h0.join("head2", "token", "--witness")
	l.write()
	first, second := newHead(t, "the first"), newHead(t, "the second")
	both := []string{"--join", h0.api() + "," + h1.api(), "--token"}
	old := map[*head]*head{first: h0, second: h1}
	tokens := map[*head]string{first: h0.token("replace", "head0"), second: h0.token("replace", "head1")}
	first.start(append(both, tokens[first])...)
	second.start(append(both, tokens[second])...)
	select {
	case <-h0.done:
	case <-h1.done:
		first, second = second, first
	}
	old[first].refused("it was removed from cluster")
	l.cl = h0.asks(patience, old[second])
	l.write() // it stays
	first.says("msg=ready")
	first.await("counts", func() error {
		list, _, err := client.Of[trivet.Head](l.cl).List(t.Context(), client.ListOptions{})
		for _, h := range list {
			if h.Status.Peer == first.api() && h.Status.State == trivet.HeadMember {
				return nil
			}
		}
		return fmt.Errorf("%+v, %w", list, err)
	})
	second.kill() // it knows only heads that are to go
	second.up("--join", first.api(), "--token", tokens[second])
	old[second].refused("it was removed from cluster")
	l.cl = h0.asks(patience, first, second)
	l.write()
	l.read(h0.asks(patience, second))
}

// The successor of a dead head may have its address.
func TestReplacedAtItsAddress(t *testing.T) {
	h0 := newHead(t, "head0")
	h0.up()
	l := newLedger(t, h0.asks(patience, h0))
	h1 := h0.join("head1")
	h0.join("head2")
	h1.kill()
	n := newHead(t, "head3")
	n.host = h1.host
	n.up("--join", h0.api(), "--token", h0.token("replace", "head1"))
	h0.counts("head3")
	h0.sees("head1", "removed")
	l.write()
	l.read(h0.asks(patience, n))
	h0.onlyHeads("head0", "head1", "head2", "head3")
}
