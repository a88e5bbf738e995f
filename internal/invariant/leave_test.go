package invariant_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/invariant"
)

func TestLeaving(t *testing.T) {
	const logs = "the parts of logs of actions that it received"
	for _, c := range []struct {
		name          string
		change        func(f *trivet.StatusFacts)
		head          string
		replaced      bool
		after         invariant.Votes
		refused, next string
		lost          []string
	}{
		{"one of three", nil, "head1", false, invariant.Votes{2, 2, 2}, "", "one more voter stops writes", []string{logs}},
		{"one of three is replaced", nil, "head1", true, invariant.Votes{3, 3, 2}, "", "", []string{logs}},
		{"the lost one is replaced", func(f *trivet.StatusFacts) { lose(f, "head2") }, "head2", true, invariant.Votes{3, 3, 2},
			"", "", []string{logs}},
		{"the lost one", func(f *trivet.StatusFacts) { lose(f, "head2") }, "head2", false, invariant.Votes{2, 2, 2}, "",
			"one more voter stops writes", []string{logs}},
		{"one that responds, while another is lost", func(f *trivet.StatusFacts) { lose(f, "head2") }, "head1", false,
			invariant.Votes{2, 1, 2}, "without it 1 of 2 voters respond, and 2 must", "the head that is left", []string{logs}},
		{"one that responds is replaced, while another is lost", func(f *trivet.StatusFacts) { lose(f, "head2") }, "head1",
			true, invariant.Votes{3, 2, 2}, "without it 1 of 2 voters respond, and 2 must", "one more voter stops writes",
			[]string{logs}},
		{"no quorum", func(f *trivet.StatusFacts) { f.Quorum = false }, "head1", false, invariant.Votes{2, 2, 2},
			"there is no quorum", "one more voter", []string{logs}},
		{"the only full head", func(f *trivet.StatusFacts) {
			f.Heads[1].Role, f.Heads[2].Role = trivet.RoleWitness, trivet.RoleWitness
		}, "head0", true, invariant.Votes{3, 3, 2}, "the only full head", "",
			[]string{"it stops everything but votes: it is the only full head that responds", logs}},
		{"a witness", func(f *trivet.StatusFacts) { f.Heads[2].Role = trivet.RoleWitness }, "head2", true, invariant.Votes{3, 3, 2},
			"", "", nil},
		{"one that joins", func(f *trivet.StatusFacts) { f.Heads[2].Voter = false }, "head2", false, invariant.Votes{2, 2, 2}, "",
			"one more voter stops writes", []string{logs}},
		{"the only copy", func(f *trivet.StatusFacts) {
			for _, i := range []int{0, 2} {
				f.Heads[i].Own.Missing, f.Heads[i].Own.BlobsMissing = []string{"sha256:1"}, 1
			}
		}, "head1", true, invariant.Votes{3, 3, 2}, "", "",
			[]string{"it loses 1 blob, of which no other head that responds has a copy", logs}},
		{"the only copy is lost", func(f *trivet.StatusFacts) {
			lose(f, "head1")
			for _, i := range []int{0, 2} {
				f.Heads[i].Own.Missing, f.Heads[i].Own.BlobsMissing = []string{"sha256:1"}, 1
			}
		}, "head1", true, invariant.Votes{3, 3, 2}, "", "", []string{"only its disk can have 1 blob that no head which responds " +
			"holds: start it first, or import the images and platforms again", logs}},
	} {
		f := well()
		if c.change != nil {
			c.change(f)
		}
		l, err := invariant.Leaving(f, c.head, c.replaced)
		if err != nil {
			t.Fatal(err)
		}
		if l.After != c.after || !contains(l.Refused, c.refused) || !contains(l.Next, c.next) ||
			(l.Refused == "") != (l.Remedy == "") || strings.Join(l.Lost, "\n") != strings.Join(c.lost, "\n") {
			t.Errorf("%s: %+v", c.name, l)
		}
	}
	if _, err := invariant.Leaving(well(), "head9", false); !errors.Is(err, trivet.ErrNotFound) {
		t.Errorf("a head that does not exist: %v", err)
	}
}

// contains reports whether a text contains another one, or is empty as well.
func contains(text, want string) bool {
	return strings.Contains(text, want) && (text == "") == (want == "")
}
