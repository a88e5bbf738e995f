package store

import (
	"fmt"
	"sync"

	"github.com/trivet-project/trivet"
)

// Event is one change of one record.
type Event struct {
	Kind     trivet.Kind
	Name     string // the full name
	Revision int64
	Deleted  bool
	part     string // the kind as in keys
	was, is  *entry
	decoded  sync.Once // of a cold kind: is, whose record few watchers need
}

// newEvent returns the event of a key's change, or nil for a key of the store itself that has no watchers, and for a
// value that was resealed. A value that was refused is as good as deleted.
func (s *Store) newEvent(key string, was, is *entry, rev int64) *Event {
	part, name, ok := splitKey(key)
	if !ok || isInternal(part) && part != leasePart {
		return nil
	}
	if is != nil && is.resealed() {
		return nil
	}
	if was != nil && was.refused() {
		was = nil
	}
	if is != nil && is.refused() {
		if is = nil; was == nil {
			return nil
		}
	}
	kind := trivet.Kind(part)
	if info := s.kinds[part]; info != nil {
		kind = info.kind
	}
	return &Event{Kind: kind, Name: name, Revision: rev, Deleted: is == nil, part: part, was: was, is: is}
}

// Record returns the record after the change, which is shared and must not be modified; nil if it was deleted or its
// kind has no table.
func (e *Event) Record() trivet.Record {
	if e.is != nil && isHistory(e.is.key) {
		e.decoded.Do(e.is.decodeOnce)
	}
	return e.is.record()
}

// Old returns the record before the change, which is shared and must not be modified; nil if it was created or is no
// longer known.
func (e *Event) Old() trivet.Record { return e.was.record() }

// JSON returns the record after the change, or the one before it if it was deleted.
func (e *Event) JSON() []byte {
	switch {
	case e.is != nil:
		return e.is.json()
	case e.was != nil:
		return e.was.json()
	}
	return fmt.Appendf(nil, `{"kind":%q,"name":%q}`, e.Kind, e.Name)
}

// Bytes returns the approximate memory that the event uses.
func (e *Event) Bytes() int {
	const overhead = 256
	n := overhead
	for _, x := range []*entry{e.was, e.is} {
		if x != nil {
			n += x.size()
		}
	}
	return n
}

// EventBytes returns the approximate memory that events use.
func EventBytes(events []*Event) (n int) {
	for _, e := range events {
		n += e.Bytes()
	}
	return n
}
