package membership

import (
	"testing"

	"github.com/trivet-project/trivet"
)

// The reason of a head that is joining is marked as such; that of another one is shown as it is.
func TestPendingReason(t *testing.T) {
	joining, member := trivet.HeadStatus{State: trivet.HeadJoining}, trivet.HeadStatus{State: trivet.HeadMember}
	for _, c := range []struct {
		status       trivet.HeadStatus
		remove       bool
		reason, want string
	}{
		{joining, false, "conflict: it has caught up", "joining: it has caught up"},
		{joining, false, "unavailable: it has not responded yet", "joining: it has not responded yet"},
		{joining, false, "promote member 1: unavailable: request timed out",
			"promote member 1: unavailable: request timed out"},
		{joining, true, "conflict: it has no quorum", "conflict: it has no quorum"},
		{member, true, "conflict: no other head", "conflict: no other head"},
		{member, false, "", ""},
	} {
		h := &trivet.Head{Spec: trivet.HeadSpec{Remove: c.remove}, Status: c.status}
		h.Status.Reason = c.reason
		if got := pendingReason(h); got != c.want {
			t.Errorf("%s: %q, want %q", c.reason, got, c.want)
		}
	}
}
