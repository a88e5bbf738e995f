package heads_test

import (
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

// A head that joined and comes and goes does not count, however often it is there; it does as soon as it stays.
func TestLearnerMustStay(t *testing.T) {
	h0 := newHead(t, "head0")
	h0.up()
	n := newHead(t, "head1")
	n.up("--join", h0.api(), "--token", h0.token())
	heads := client.Of[trivet.Head](h0.asks(patience, h0))
	for range 6 {
		n.kill()
		rec, err := heads.Get(t.Context(), "head1")
		if err != nil || rec.Status.State != trivet.HeadJoining {
			t.Fatalf("it comes and goes, and is %+v, %v", rec, err)
		}
		n.up()
	}
	h0.counts("head1")
}
