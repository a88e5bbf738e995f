package store

import (
	"sync"

	"github.com/trivet-project/trivet/internal/keyring"
)

// sealedCounts is how many values of the copy are encrypted with each key.
type sealedCounts struct {
	metrics *metrics

	mu     sync.Mutex
	values map[keyring.ID]int // guarded by mu; without those that were refused
}

// replace counts that an entry takes the place of another one; either may be nil.
func (c *sealedCounts) replace(old, e *entry) {
	if old != nil && e != nil && old.sealed == e.sealed && !old.refused() && !e.refused() {
		return
	}
	c.change(old, -1)
	c.change(e, 1)
}

func (c *sealedCounts) add(e *entry) { c.change(e, 1) }

func (c *sealedCounts) remove(e *entry) { c.change(e, -1) }

func (c *sealedCounts) change(e *entry, by int) {
	if e == nil || e.refused() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.values[e.sealed] += by
	gauge := c.metrics.sealed.WithLabelValues(e.sealed.String())
	if gauge.Set(float64(c.values[e.sealed])); c.values[e.sealed] == 0 {
		delete(c.values, e.sealed)
		c.metrics.sealed.DeleteLabelValues(e.sealed.String())
	}
}

// reset forgets all values: the copy is loaded.
func (c *sealedCounts) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.values)
	c.metrics.sealed.Reset()
}

// ValuesUnder returns how many values of this head's copy are encrypted with a key.
func (s *Store) ValuesUnder(id keyring.ID) int {
	s.sealed.mu.Lock()
	defer s.sealed.mu.Unlock()
	return s.sealed.values[id]
}

// resealed reports whether the value was only encrypted again, and its record not changed.
func (e *entry) resealed() bool { return e.rev != e.mod }
