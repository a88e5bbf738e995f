package invariant

import (
	"fmt"

	"github.com/trivet-project/trivet"
)

// Leave is what it means that a head leaves the cluster: what is lost, and what the next failure would break.
type Leave struct {
	Head     string `json:"head"`
	Role     string `json:"role"`
	Responds bool   `json:"responds"`
	Replaced bool   `json:"replaced"` // another head joins in its role
	Before   Votes  `json:"before"`
	After    Votes  `json:"after"`
	// Refused is why it is not possible now, and Remedy what to do first; empty: it is.
	Refused string `json:"refused,omitempty"`
	Remedy  string `json:"remedy,omitempty"`
	// Lost is what no other head has or does.
	Lost []string `json:"lost"`
	// Next is what the next failure would break afterwards; empty: nothing.
	Next string `json:"next,omitempty"`

	without Votes // afterwards, or before the head that replaces it votes
}

// Votes are the voters of the store: how many there are, respond, and must.
type Votes struct {
	Voters  int `json:"voters"`
	Respond int `json:"respond"`
	Needed  int `json:"needed"`
}

func (v Votes) String() string {
	return fmt.Sprintf("%d of %s %s, and %d must", v.Respond, count(v.Voters, "voter"),
		has(v.Voters, "responds", "respond"), v.Needed)
}

// Leaving returns what it means that a head is removed, or replaced by another one. It fails with ErrNotFound where the
// cluster has no such head.
func Leaving(f *trivet.StatusFacts, head string, replaced bool) (*Leave, error) {
	for i := range f.Heads {
		if h := &f.Heads[i]; h.Name == head {
			l := &Leave{Head: head, Role: h.Role, Responds: !h.Down, Replaced: replaced, Lost: []string{}}
			l.vote(votersOf(f), h)
			l.refuse(f, h)
			l.lose(f, h)
			return l, nil
		}
	}
	return nil, &trivet.Error{Op: "plan", Kind: "Head", Name: head, Err: trivet.ErrNotFound}
}

// vote counts the votes before and afterwards.
func (l *Leave) vote(v voting, h *trivet.HeadFacts) {
	l.Before = Votes{Voters: len(v.all), Respond: len(v.up), Needed: v.majority()}
	l.After = l.Before
	if h.Voter {
		l.After.Voters--
		if !h.Down {
			l.After.Respond--
		}
	}
	l.without = l.After
	l.without.Needed = l.without.Voters/2 + 1
	if l.Replaced && h.Role != trivet.RoleStandby {
		l.After.Voters++
		l.After.Respond++
	}
	l.After.Needed = l.After.Voters/2 + 1
	switch {
	case l.After.Voters == 0: // it is refused
	case l.After.Respond == 1:
		l.Next = "the loss of the head that is left stops everything; add heads: trivet head token"
	case l.After.Respond-1 < l.After.Needed:
		l.Next = "the loss of one more voter stops writes; add a head or a witness: trivet head token"
	}
}

// refuse finds why the heads would refuse it.
func (l *Leave) refuse(f *trivet.StatusFacts, h *trivet.HeadFacts) {
	others := 0
	for _, o := range f.Heads {
		if o.Name != h.Name && o.Voter && o.Role != trivet.RoleWitness {
			others++
		}
	}
	switch {
	case !f.Quorum:
		l.Refused, l.Remedy = "there is no quorum: nothing can be changed", "see "+pageRecovery
	case others == 0 && h.Role != trivet.RoleWitness:
		l.Refused, l.Remedy = "it is the only full head that votes", "let another one join first: trivet head token"
	case l.without.Respond < l.without.Needed: // also while the head that replaces it catches up
		l.Refused, l.Remedy = fmt.Sprintf("without it %s", l.without),
			"start the heads that are down, or replace them: trivet head replace"
	}
}

// lose finds what no other head has or does.
func (l *Leave) lose(f *trivet.StatusFacts, h *trivet.HeadFacts) {
	if h.Role == trivet.RoleWitness {
		return // it has votes only
	}
	for _, loss := range lossesOf(f)[h.Name] {
		l.Lost = append(l.Lost, "it "+loss.text)
	}
	if h.Down {
		copies, _, _ := copiesOf(f)
		none := 0
		for _, n := range copies {
			if n == 0 {
				none++
			}
		}
		if none > 0 {
			l.Lost = append(l.Lost, "only its disk can have "+count(none, "blob")+" that no head which responds holds: "+
				"start it first, or import the images and platforms again")
		}
	}
	l.Lost = append(l.Lost, "the parts of logs of actions that it received")
}
