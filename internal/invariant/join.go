package invariant

import (
	"slices"

	"github.com/trivet-project/trivet"
)

// Join is what it means that another head joins the cluster.
type Join struct {
	Role   string `json:"role"`
	Before Votes  `json:"before"`
	After  Votes  `json:"after"`
	// Refused is why it is not possible now, and Remedy what to do first; empty: it is.
	Refused string `json:"refused,omitempty"`
	Remedy  string `json:"remedy,omitempty"`
	// Next is what the next failure would break afterwards; empty: nothing.
	Next string `json:"next,omitempty"`
}

// Adding returns what it means that a head of a role joins.
func Adding(f *trivet.StatusFacts, role string) *Join {
	v := votersOf(f)
	j := &Join{Role: role, Before: Votes{Voters: len(v.all), Respond: len(v.up), Needed: v.majority()}}
	j.After = j.Before
	if role != trivet.RoleStandby {
		j.After.Voters++
		j.After.Respond++
		j.After.Needed = j.After.Voters/2 + 1
	}
	switch {
	case !f.Quorum:
		j.Refused, j.Remedy = "there is no quorum: nothing can be changed", "see "+pageRecovery
	case role == trivet.RoleStandby && slices.ContainsFunc(f.Heads, isStandby):
		j.Refused, j.Remedy = "there is a standby, and there is one at most", "remove that first: trivet head remove"
	}
	if j.After.Respond-1 < j.After.Needed {
		j.Next = "the loss of one voter stops writes; add a head or a witness"
	}
	return j
}

func isStandby(h trivet.HeadFacts) bool { return h.Role == trivet.RoleStandby }
