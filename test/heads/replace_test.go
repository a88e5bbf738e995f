package heads_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

// Where both full heads beside a witness are replaced at once, the second one stays until the successor of the first
// is a member: the witness is never alone.
func TestBothAreReplaced(t *testing.T) {
	t.Parallel()
	h0, l := startWithLedger(t)
	h1 := h0.join("head1")
	h0.join("head2", "token", "--witness")
	h0.issueToken()
	l.cl = h0.client(h0)
	l.write()
	first, second := newHead(t, "the first"), newHead(t, "the second")
	both := []string{"--join", h0.API() + "," + h1.API(), "--token"}
	old := map[*head]*head{first: h0, second: h1}
	tokens := map[*head]string{first: h0.token("replace", "head0"), second: h0.token("replace", "head1")}
	first.Start(append(both, tokens[first])...)
	second.Start(append(both, tokens[second])...)
	select {
	case <-h0.Done():
	case <-h1.Done():
		first, second = second, first
	}
	old[first].expectRefusal("it was removed from cluster")
	l.cl = h0.client(old[second])
	l.write() // the second one stays
	first.AwaitLog("msg=ready")
	first.Await("is a member", func() error {
		list, _, err := client.Of[trivet.Head](l.cl).List(t.Context(), client.ListOptions{})
		for _, h := range list {
			if h.Status.Peer == first.API() && h.Status.State == trivet.HeadMember {
				return nil
			}
		}
		return fmt.Errorf("%+v, %w", list, err)
	})
	second.Kill() // it knows only heads that leave
	second.Up("--join", first.API(), "--token", tokens[second])
	old[second].expectRefusal("it was removed from cluster")
	l.cl = h0.client(first, second)
	l.write()
	l.read(h0.client(second))
}

// The successor of a failed head may use its address. No token replaces a head that is up meanwhile: it would be
// removed before its successor votes.
func TestReplacedAtItsAddress(t *testing.T) {
	t.Parallel()
	h0, l := startWithLedger(t)
	h1 := h0.join("head1")
	h0.join("head2")
	h1.Kill()
	h0.awaitState("head1", "down")
	r, err := h0.Trivet("head", "replace", "head2")
	if err == nil || !strings.Contains(r.All, "most of the remaining voters") {
		t.Errorf("while another one is down, one that is up may be replaced: %v", err)
	}
	n := newHead(t, "head3")
	n.Address = h1.Address
	n.Up("--join", h0.API(), "--token", h0.token("replace", "head1"))
	h0.awaitMember("head3")
	h0.awaitState("head1", "removed")
	l.write()
	l.read(h0.client(n))
	h0.expectHeads("head0", "head1", "head2", "head3")
}
