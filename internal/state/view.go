package state

import (
	"slices"
	"sync/atomic"

	"github.com/trivet-project/trivet/internal/store"
)

// View is a value that is computed from all records of one kind, and computed again when one of them has changed.
// It takes no lock, so that it may be read for each packet.
type View[R, V any] struct {
	store   *store.Store
	table   *store.Table[R]
	compute func(records []*R) V
	current atomic.Pointer[computed[R, V]]
}

type computed[R, V any] struct {
	revision int64
	records  []*R
	value    V
}

// NewView returns a view of a table of the store. compute must not change the records, nor keep what it returns
// elsewhere.
func NewView[R, V any](s *store.Store, table *store.Table[R], compute func(records []*R) V) *View[R, V] {
	return &View[R, V]{store: s, table: table, compute: compute}
}

// Get returns the value for the records of this moment.
func (v *View[R, V]) Get() V {
	revision := v.store.Revision()
	last := v.current.Load()
	if last != nil && last.revision == revision {
		return last.value
	}
	next := &computed[R, V]{revision: revision, records: slices.Collect(v.table.AllShared())}
	if last != nil && slices.Equal(next.records, last.records) {
		next.value = last.value
	} else {
		next.value = v.compute(next.records)
	}
	v.current.Store(next)
	return next.value
}
