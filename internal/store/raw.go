package store

import (
	"encoding/json"
	"fmt"
	"iter"

	"github.com/trivet-project/trivet"
)

// Code that is generic over kinds sees a record as JSON, with the fields that this version does not know.

// Raw is a stored record.
type Raw struct{ e *entry }

// Name returns the record's full name.
func (r Raw) Name() string { return r.e.name }

// Revision returns the revision of the record's last change.
func (r Raw) Revision() int64 { return r.e.rev }

// Bytes returns the approximate size of its JSON.
func (r Raw) Bytes() int { return r.e.size() }

// JSON returns the record with its revision.
func (r Raw) JSON() []byte { return r.e.json() }

// Record returns the typed record, which is shared and must not be modified; nil if it cannot be decoded or its kind
// has no table.
func (r Raw) Record() trivet.Record { return r.e.record() }

// Get returns one record of a kind that is not cold, or ErrNotFound.
func (s *Store) Get(kind trivet.Kind, name string) (Raw, error) {
	e := s.snapshot().get(s.key(kind, name))
	if e == nil {
		return Raw{}, &trivet.Error{Op: "get", Kind: kind, Name: trivet.ShortName(name), Err: trivet.ErrNotFound}
	}
	if e.refused() {
		return Raw{}, e.fail("get")
	}
	return Raw{e}, nil
}

// key returns the key of a record, also of a kind that is not registered.
func (s *Store) key(kind trivet.Kind, name string) string {
	if info := s.kinds[kindPart(kind)]; info != nil {
		return info.key(name)
	}
	return recordKey(kindPart(kind), name)
}

// List returns the records of the copy of a kind and project (empty: of all, or of a kind that has none) in order of
// full name, after a full name, at most limit (0: all), at a revision from which a watch can begin. Those that were
// refused are missing.
func (s *Store) List(kind trivet.Kind, project, after string, limit int) (records []Raw, revision int64) {
	part, snap := kindPart(kind), s.snapshot()
	return page(snap.under(keysOf(part, project), recordKey(part, after)), limit), snap.rev
}

// keysOf returns what the keys of a kind's records begin with, of one project or of all.
func keysOf(part, project string) string {
	if project == "" {
		return recordKey(part, "")
	}
	return recordKey(part, trivet.FullName(project, ""))
}

// ListByField is as List, of the records whose field has a value. ok is false where no index has that field, or only
// one that needs a project.
func (s *Store) ListByField(kind trivet.Kind, project, field, value, after string, limit int) (records []Raw,
	revision int64, ok bool) {
	info, snap := s.kinds[kindPart(kind)], s.snapshot()
	for _, ix := range info.indexes {
		if ix.field != field {
			continue
		}
		if from, ok := snap.byField(info, ix, project, value, after); ok {
			return page(from, limit), snap.rev, true
		}
	}
	return nil, 0, false
}

// byField yields the entries of a project (empty: of all) whose field, which is that of an index, has a value, after a
// full name. ok is false where that needs a project.
func (s *snapshot) byField(info *kindInfo, ix index, project, value, after string) (from iter.Seq[*entry], ok bool) {
	if ix.inProject && project == "" {
		return nil, false
	}
	if ix.inProject {
		value = trivet.Resolve(project, value)
	}
	list := listPath(info.part, ix.name, value)
	return s.indexed(list+keysOf(info.part, project), list+recordKey(info.part, after)), true
}

// page returns the records of entries, at most limit (0: all).
func page(from iter.Seq[*entry], limit int) (records []Raw) {
	for e := range from {
		if e.refused() {
			continue
		}
		if records = append(records, Raw{e}); len(records) == limit {
			break
		}
	}
	return records
}

func (tx *Tx) info(op string, kind trivet.Kind, name string) (*kindInfo, error) {
	info := tx.store.kinds[kindPart(kind)]
	if info == nil {
		return nil, &trivet.Error{Op: op, Kind: kind, Name: trivet.ShortName(name),
			Err: fmt.Errorf("%w: unknown kind", trivet.ErrInvalid)}
	}
	return info, nil
}

// Raw returns a record's JSON, without its revision and including the transaction's writes so far, or ErrNotFound.
func (tx *Tx) Raw(kind trivet.Kind, name string) (doc []byte, revision int64, err error) {
	info, err := tx.info("get", kind, name)
	if err != nil {
		return nil, 0, err
	}
	if err := tx.checkRead(info); err != nil {
		return nil, 0, tx.fail("get", info, name, err)
	}
	key := info.key(name)
	e := tx.read(key)
	switch w := tx.writes[key]; {
	case w != nil && w.doc != nil:
		return w.doc, tx.changeOf(key), nil
	case w == nil && e != nil && e.refused():
		return nil, 0, e.fail("get")
	case w == nil && e != nil:
		return e.full(), e.rev, nil
	}
	return nil, 0, tx.fail("get", info, name, trivet.ErrNotFound)
}

// PutRaw replaces a record's JSON as a whole, except for unknown fields of list elements, which are kept. The caller
// must have validated it. The store sets kind, name, UID, Created and Generation, as for Put.
func (tx *Tx) PutRaw(kind trivet.Kind, name string, doc []byte) error {
	info, err := tx.info("put", kind, name)
	if err != nil {
		return err
	}
	old, err := tx.stored("put", info, name, 0)
	if err != nil {
		return err
	}
	if old != nil && old.unknown {
		if doc, err = keepInLists(info.typ, old.full(), doc); err != nil {
			return tx.fail("put", info, name, err)
		}
	}
	h := trivet.Meta{Kind: info.kind}
	h.Project, h.Name = info.split(name)
	if err := tx.fillHeader(&h, old); err != nil {
		return tx.fail("put", info, name, err)
	}
	if old != nil && !sameSpec(old.full(), doc) {
		h.Generation++
	}
	if doc, err = withHeader(doc, h); err != nil {
		return tx.fail("put", info, name, err)
	}
	rec, unknown, err := decode(info, doc)
	if err != nil {
		return tx.fail("put", info, name, err)
	}
	return tx.putDoc("put", info, name, &write{doc: doc, rec: rec, unknown: unknown}, old)
}

// withHeader sets the header fields in a record's JSON.
func withHeader(doc []byte, h trivet.Meta) ([]byte, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(doc, &fields); err != nil || fields == nil {
		return nil, fmt.Errorf("%w: a record must be a JSON object: %v", trivet.ErrInvalid, err)
	}
	head, err := json.Marshal(h)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(head, &fields); err != nil {
		return nil, err
	}
	delete(fields, "revision")
	delete(fields, "tx")
	return json.Marshal(fields)
}

// Delete removes a record, or returns ErrNotFound.
func (tx *Tx) Delete(kind trivet.Kind, name string) error {
	info, err := tx.info("delete", kind, name)
	if err != nil {
		return err
	}
	return tx.del(info, name)
}
