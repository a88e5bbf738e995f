package store

import (
	"encoding/json"
	"fmt"

	"github.com/trivet-project/trivet"
)

// Code that is generic over kinds sees a record as JSON, with the fields that this version does not know.

// Raw is a stored record.
type Raw struct{ e *entry }

// Name returns the record's full name.
func (r Raw) Name() string { return r.e.name }

// Revision returns the revision of the record's last change.
func (r Raw) Revision() int64 { return r.e.rev }

// JSON returns the record with its revision.
func (r Raw) JSON() []byte { return r.e.json() }

// Record returns the typed record, which is shared and must not be modified; nil if it cannot be decoded or its kind
// has no table.
func (r Raw) Record() trivet.Record { return r.e.rec }

// Get returns one record of a kind, or ErrNotFound.
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

// List returns the records of a kind and project (empty: of all, or of a kind that has none) in order of full name,
// after a full name, at most limit (0: all), at a revision from which a watch can begin. Those that were refused are
// missing.
func (s *Store) List(kind trivet.Kind, project, after string, limit int) (records []Raw, revision int64) {
	snap := s.snapshot()
	all := recordKey(kindPart(kind), "")
	under := all
	if project != "" {
		under += trivet.FullName(project, "")
	}
	for e := range snap.under(under, all+after) {
		if e.refused() {
			continue
		}
		if records = append(records, Raw{e}); len(records) == limit {
			break
		}
	}
	return records, snap.rev
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
		return w.doc, tx.reads[key], nil
	case w == nil && e != nil && e.refused():
		return nil, 0, e.fail("get")
	case w == nil && e != nil:
		return e.doc, e.rev, nil
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
		if doc, err = keepInLists(info.typ, old.doc, doc); err != nil {
			return tx.fail("put", info, name, err)
		}
	}
	h := trivet.Meta{Kind: info.kind}
	h.Project, h.Name = info.split(name)
	if err := tx.fillHeader(&h, old); err != nil {
		return tx.fail("put", info, name, err)
	}
	if old != nil && !sameSpec(old.doc, doc) {
		h.Generation++
	}
	if doc, err = withHeader(doc, h); err != nil {
		return tx.fail("put", info, name, err)
	}
	rec, _, err := decode(info, doc)
	if err != nil {
		return tx.fail("put", info, name, err)
	}
	return tx.putDoc("put", info, name, doc, rec, old)
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
