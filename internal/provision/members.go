package provision

import (
	"fmt"
	"math"

	"github.com/trivet-project/trivet"
)

// A provision with spec.count has members, which are provisions of their own. It decides how many there are; whatever
// becomes of one is decided as for any other provision.

// MemberState is what the counts of members distinguish.
type MemberState string

// The states of a member.
const (
	NoMember        MemberState = "" // it does not exist
	MemberWaiting   MemberState = "waiting"
	MemberRunning   MemberState = "running"
	MemberSucceeded MemberState = "succeeded"
	MemberFailed    MemberState = "failed"
)

// StateOfMember returns the state of a member that exists.
func StateOfMember(st *trivet.ProvisionStatus) MemberState {
	switch {
	case st.State.Waits() || st.State == trivet.ProvisionFrozen && st.Machine == "":
		return MemberWaiting
	case st.State == trivet.ProvisionFrozen:
		return MemberRunning
	}
	return MemberState(st.State)
}

const (
	// maxWaiting is how many members of a provision wait for a machine at the same time: the next ones are created as
	// these get one, so that the queue is short, whatever the count.
	maxWaiting = 100
	// suspectAfter is after how many failed members, while none succeeded, no more are created: the configuration may
	// be at fault, which would use up all machines.
	suspectAfter = 3
)

// Plan is what is to be done about the members of a provision: at most one of its numbers is not 0.
type Plan struct {
	Create        int
	DeleteWaiting int
	DeleteFailed  int
}

// PlanMembers decides how many members are to be created or deleted. One that has a machine is never deleted.
func PlanMembers(spec *trivet.ProvisionSpec, c trivet.MemberCounts) Plan {
	count, limit := *spec.Count, inFlightLimit(spec)
	excess, over := max(0, c.Total()-count), max(0, c.InFlight()-limit)
	switch {
	case c.Waiting > 0 && max(excess, over) > 0:
		return Plan{DeleteWaiting: min(c.Waiting, max(excess, over))}
	case c.Failed > 0 && excess > 0:
		return Plan{DeleteFailed: min(c.Failed, excess)}
	case allFail(c):
		return Plan{}
	}
	return Plan{Create: max(0, min(count-c.Total(), limit-c.InFlight(), maxWaiting-c.Waiting))}
}

func inFlightLimit(spec *trivet.ProvisionSpec) int {
	if spec.MaxInFlight == 0 {
		return math.MaxInt
	}
	return spec.MaxInFlight
}

func allFail(c trivet.MemberCounts) bool { return c.Succeeded == 0 && c.Failed >= suspectAfter }

// Move returns the counts after a member has changed from one state to another. It is false where it must not: it would
// be one more that waits or runs, or that runs, than spec.maxInFlight.
func Move(spec *trivet.ProvisionSpec, c trivet.MemberCounts, from, to MemberState) (trivet.MemberCounts, bool) {
	was := c
	add(&c, from, -1)
	add(&c, to, 1)
	limit := inFlightLimit(spec)
	exceeds := c.InFlight() > was.InFlight() && c.InFlight() > limit || c.Running > was.Running && c.Running > limit
	return c, !exceeds
}

func add(c *trivet.MemberCounts, state MemberState, n int) {
	switch state {
	case MemberWaiting:
		c.Waiting += n
	case MemberRunning:
		c.Running += n
	case MemberSucceeded:
		c.Succeeded += n
	case MemberFailed:
		c.Failed += n
	}
}

// Summary returns the state of a provision with spec.count, and its reason, by the counts of its members. It has ended
// when no member waits or runs and none is to be created or deleted. It goes on where that changes.
func Summary(spec *trivet.ProvisionSpec, c trivet.MemberCounts) (state trivet.ProvisionState, reason string) {
	count := *spec.Count
	switch {
	case c.InFlight() > 0 || PlanMembers(spec, c) != Plan{}:
		if c.Total() == c.Waiting {
			return trivet.ProvisionPending, "no member has a machine yet"
		}
		return trivet.ProvisionRunning, ""
	case c.Total() < count:
		return trivet.ProvisionFailed, fmt.Sprintf("%d members have failed and none has succeeded: check the "+
			"template, its parameters and the image before more machines are used; then delete the failed members, and "+
			"others are created", c.Failed)
	case c.Failed > 0:
		return trivet.ProvisionFailed, fmt.Sprintf("%d of %d members failed; for each that is deleted another "+
			"one is created", c.Failed, c.Total())
	}
	return trivet.ProvisionSucceeded, ""
}
