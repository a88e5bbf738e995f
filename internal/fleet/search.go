package fleet

import (
	"fmt"
	"sync"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/state"
)

// A search for a machine ends after a number of machines, whatever the number of those that cannot be used, because
// their platform is at fault, or that have only some of the labels. The next search by the same selector goes on from
// there.

const (
	maxSearched = 10_000 // machines that one search reads
	maxSearches = 1024   // selectors whose last search did not end; all begin again when there are more
)

// searches remembers where searches go on.
type searches struct {
	most  int
	mu    sync.Mutex
	after map[string]string // guarded by mu; by selector
}

func newSearches() *searches { return &searches{most: maxSearched, after: map[string]string{}} }

func (s *searches) new() *state.Search { return &state.Search{Left: s.most} }

// find returns the machine that a search by a selector finds; nil where it finds none.
func (s *searches) find(selector map[string]string, search func(*state.Search) *trivet.Machine) *trivet.Machine {
	key, at := fmt.Sprint(selector), s.new()
	s.mu.Lock()
	at.After = s.after[key]
	s.mu.Unlock()
	begin := at.After
	m := search(at)
	if m == nil && at.Left > 0 && begin != "" { // after the last one comes the first one
		at.After = ""
		m = search(at)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case m != nil:
	case at.Left > 0:
		delete(s.after, key)
	default:
		if len(s.after) >= maxSearches {
			clear(s.after)
		}
		s.after[key] = at.After
	}
	return m
}

// ended reports whether the last search by a selector read all machines.
func (s *searches) ended(selector map[string]string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, goesOn := s.after[fmt.Sprint(selector)]
	return !goesOn
}
