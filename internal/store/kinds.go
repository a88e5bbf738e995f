package store

import (
	"reflect"

	"github.com/trivet-project/trivet"
)

// Register registers a kind for code that is generic over the kinds. A kind that has a table is known
// already. All kinds are registered before the store is started.
func (s *Store) Register(kind trivet.KindInfo) {
	part := kindPart(kind.Kind)
	if known := s.kinds[part]; known != nil {
		known.since, known.fieldsSince, known.specApart = kind.Since, kind.FieldsSince, kind.SpecApart
		if known.former != nil {
			known.former.since = kind.FormerSince
		}
		return
	}
	if s.started {
		panic("store: kind " + string(kind.Kind) + " is registered after the start")
	}
	info := &kindInfo{
		kind: kind.Kind, part: part, scope: kind.Scope, typ: reflect.TypeOf(kind.New()).Elem(),
		new: kind.New, copy: func(r trivet.Record) trivet.Record { return deepCopy(r) },
		since: kind.Since, fieldsSince: kind.FieldsSince, specApart: kind.SpecApart,
	}
	info.addReferences()
	s.kinds[part] = info
}

// Record returns a copy of a record by its full name as the transaction sees it, or ErrNotFound. See [View.Get].
func (tx *Tx) Record(kind trivet.Kind, name string) (trivet.Record, error) {
	info, err := tx.info("get", kind, name)
	if err != nil {
		return nil, err
	}
	return tx.get(info, name)
}

// CreateRecord writes a record of any kind that must not exist yet. See [View.Create].
func (tx *Tx) CreateRecord(r trivet.Record) error {
	name := r.Header().FullName()
	info, err := tx.info("create", trivet.KindOf(r), name)
	if err != nil {
		return err
	}
	if _, err := tx.get(info, name); err == nil {
		return tx.fail("create", info, name, trivet.ErrExists)
	}
	return tx.put("create", info, r)
}

// PutRecord writes a record of any kind. See [View.Put].
func (tx *Tx) PutRecord(r trivet.Record) error {
	info, err := tx.info("put", trivet.KindOf(r), r.Header().FullName())
	if err != nil {
		return err
	}
	return tx.put("put", info, r)
}
