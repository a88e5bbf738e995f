package heads_test

import (
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

// A head that joined and keeps restarting does not become a member, however often it is up; it does as soon as it
// stays up.
func TestLearnerMustStayUp(t *testing.T) {
	t.Parallel()
	h0 := startFirst(t)
	n := newHead(t, "head1")
	n.Up("--join", h0.API(), "--token", h0.token())
	heads := client.Of[trivet.Head](h0.client(h0))
	for range 6 {
		n.Kill()
		rec, err := heads.Get(t.Context(), "head1")
		if err != nil || rec.Status.State != trivet.HeadJoining {
			t.Fatalf("it restarts again and again, and is %+v, %v", rec, err)
		}
		n.Up()
	}
	h0.awaitMember("head1")
}
