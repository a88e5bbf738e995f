package store

import (
	"sync"

	"github.com/trivet-project/trivet"
)

// A record may be at rest: its kind says so, as of a run that has ended. It is seldom read, and a site has as many as
// machines. So the copy has it as it is stored, and it is decoded when it is read. Those that were decoded last stay
// so, a fixed number of each kind: the watchers of a change read its record, and what is read once is often read again.

// Resting declares which records of the table are at rest. It returns the table, and is called before the store is
// started.
func (t *Table[T]) Resting(rests func(*T) bool) *Table[T] {
	t.info.rests = func(r trivet.Record) bool { return rests(any(r).(*T)) }
	t.info.awake = &awake{last: make([]*entry, maxAwake)}
	return t
}

// NotAtRest returns the full names of the records that are not at rest, in order. None is decoded for that.
func (t *Table[T]) NotAtRest() (names []string) {
	for e := range t.readable() {
		if !e.resting {
			names = append(names, e.name)
		}
	}
	return names
}

// maxAwake is how many records at rest of a kind stay decoded.
const maxAwake = 2048

// awake are the records at rest that were decoded last.
type awake struct {
	mu   sync.Mutex
	last []*entry // guarded by mu; a ring
	next int      // guarded by mu
}

// add adds one in the place of the oldest, which is decoded again when it is read next.
func (a *awake) add(e *entry) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if old := a.last[a.next]; old != nil && old != e {
		old.forgetDecoded()
	}
	a.last[a.next] = e
	a.next = (a.next + 1) % len(a.last)
}

// wake returns the record of an entry that is at rest; nil if it cannot be decoded.
func (e *entry) wake() trivet.Record {
	if rec := e.getDecoded(); rec != nil {
		return rec
	}
	rec, _, err := e.decodeRecord(nil)
	if err != nil {
		return nil
	}
	e.setDecoded(rec)
	e.noteDecoded()
	return rec
}

// noteDecoded bounds for how long an entry that is at rest stays decoded.
func (e *entry) noteDecoded() {
	if e.resting {
		e.info.awake.add(e)
	}
}

func (e *entry) setDecoded(rec trivet.Record) { e.decoded.Store(&rec) }

// getDecoded returns the record of an entry that is at rest or a spec, or nil where it is not decoded.
func (e *entry) getDecoded() trivet.Record {
	if rec := e.decoded.Load(); rec != nil {
		return *rec
	}
	return nil
}

// forgetDecoded makes the entry and its spec as small as they are stored.
func (e *entry) forgetDecoded() {
	e.decoded.Store(nil)
	if e.spec != nil {
		e.spec.decoded.Store(nil)
	}
}
