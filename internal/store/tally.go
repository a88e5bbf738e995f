package store

import (
	"maps"
	"sync"

	"github.com/trivet-project/trivet"
)

// Tally counts the records of a kind in the local copy by a key of each, such as a machine's state. It is counted with
// each change, so that reading it reads no record.
type Tally[T any] struct {
	key func(*T) string

	mu     sync.Mutex
	counts map[string]int // guarded by mu; without zeros
}

// NewTally adds a tally to a table whose store has not started yet. key is pure; a record whose key is empty is not
// counted.
func NewTally[T any](table *Table[T], key func(*T) string) *Tally[T] {
	t := &Tally[T]{key: key, counts: map[string]int{}}
	table.info.tallies = append(table.info.tallies, t)
	return t
}

// Counts returns the number of records by key. A key without records is not in it.
func (t *Tally[T]) Counts() map[string]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.counts)
}

// Count returns the number of records of a key.
func (t *Tally[T]) Count(key string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.counts[key]
}

// tally is a Tally of any kind.
type tally interface {
	change(rec trivet.Record, by int)
	reset()
}

func (t *Tally[T]) change(rec trivet.Record, by int) {
	v, ok := any(rec).(*T)
	if !ok { // it cannot be decoded
		return
	}
	key := t.key(v)
	if key == "" {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.counts[key] += by; t.counts[key] == 0 {
		delete(t.counts, key)
	}
}

func (t *Tally[T]) reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.counts)
}

// tally counts an entry, which may be nil, in the tallies of its kind.
func (e *entry) tally(by int) {
	if e == nil || e.info == nil {
		return
	}
	for _, t := range e.info.tallies {
		t.change(e.record(), by)
	}
}

// resetTallies forgets all records: the copy is loaded.
func (s *Store) resetTallies() {
	for _, info := range s.kinds {
		for _, t := range info.tallies {
			t.reset()
		}
	}
}
