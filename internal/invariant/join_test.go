package invariant_test

import (
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/invariant"
)

func TestAdding(t *testing.T) {
	for _, c := range []struct {
		name          string
		change        func(f *trivet.StatusFacts)
		role          string
		after         invariant.Votes
		refused, next string
	}{
		{"a fourth voter", nil, trivet.RoleVoter, invariant.Votes{4, 4, 3}, "", ""},
		{"a witness", nil, trivet.RoleWitness, invariant.Votes{4, 4, 3}, "", ""},
		{"a standby", nil, trivet.RoleStandby, invariant.Votes{3, 3, 2}, "", ""},
		{"one instead of the lost one", func(f *trivet.StatusFacts) { lose(f, "head2") }, trivet.RoleVoter,
			invariant.Votes{4, 3, 3}, "", "the loss of one voter stops writes"},
		{"no quorum", func(f *trivet.StatusFacts) { f.Quorum = false }, trivet.RoleVoter, invariant.Votes{4, 4, 3},
			"there is no quorum", ""},
		{"a second standby, while the first is lost", func(f *trivet.StatusFacts) {
			lose(f, "head2")
			f.Heads[2].Role, f.Heads[2].Voter = trivet.RoleStandby, false
		}, trivet.RoleStandby, invariant.Votes{2, 2, 2}, "there is a standby", "the loss of one voter"},
	} {
		f := well()
		if c.change != nil {
			c.change(f)
		}
		j := invariant.Adding(f, c.role)
		if j.After != c.after || (c.refused == "") != (j.Refused == "") || !strings.Contains(j.Refused, c.refused) ||
			(c.next == "") != (j.Next == "") || !strings.Contains(j.Next, c.next) || (j.Refused != "") != (j.Remedy != "") {
			t.Errorf("%s: %+v", c.name, j)
		}
	}
}
