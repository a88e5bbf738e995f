package store

import (
	"fmt"

	"github.com/trivet-project/trivet"
)

// Event is one change of one record.
type Event struct {
	Kind     trivet.Kind
	Name     string
	Revision int64
	Deleted  bool
	part     string // the kind as in keys
	was, is  *entry
}

// newEvent makes an event of a key's change; nil where the key is the store's own and nobody waits for it.
func (s *Store) newEvent(key string, was, is *entry, rev int64) *Event {
	part, name, ok := splitKey(key)
	if !ok || isOwn(part) && part != leasePart {
		return nil
	}
	kind := trivet.Kind(part)
	if info := s.kinds[part]; info != nil {
		kind = info.kind
	}
	return &Event{Kind: kind, Name: name, Revision: rev, Deleted: is == nil, part: part, was: was, is: is}
}

// Record is the record after the change, not to be modified; nil if it was deleted or its kind has no table.
func (e *Event) Record() trivet.Record { return e.is.record() }

// Old is the record before the change, not to be modified; nil if it was created, or where that is no longer known.
func (e *Event) Old() trivet.Record { return e.was.record() }

// JSON is the record after the change, as readers get it; before it, where it was deleted.
func (e *Event) JSON() []byte {
	switch {
	case e.is != nil:
		return e.is.json()
	case e.was != nil:
		return e.was.json()
	}
	return fmt.Appendf(nil, `{"kind":%q,"name":%q}`, e.Kind, e.Name)
}

// bytes is about what holding the event costs.
func (e *Event) bytes() int {
	const overhead = 256
	n := overhead
	for _, x := range []*entry{e.was, e.is} {
		if x != nil {
			n += len(x.doc)
		}
	}
	return n
}
