package store

import (
	"encoding/json"
	"fmt"

	"github.com/trivet-project/trivet"
)

// The paths that are generic over the nouns see a record as its JSON, with the fields that this version does not know.

// Raw is a stored record.
type Raw struct{ e *entry }

// Name is the record's.
func (r Raw) Name() string { return r.e.name }

// Revision is that of its last change.
func (r Raw) Revision() int64 { return r.e.rev }

// JSON is the record with its revision.
func (r Raw) JSON() []byte { return r.e.json() }

// Record is the typed record, not to be modified; nil where it cannot be read or its kind has no table.
func (r Raw) Record() trivet.Record { return r.e.rec }

// Get gives one record of a kind, or ErrNotFound.
func (s *Store) Get(kind trivet.Kind, name string) (Raw, error) {
	e := s.snapshot().get(recordKey(kindPart(kind), name))
	if e == nil {
		return Raw{}, &trivet.Error{Op: "get", Kind: kind, Name: name, Err: trivet.ErrNotFound}
	}
	return Raw{e}, nil
}

// List gives the records of a kind by name: those after a name, at most limit (0: all), as they are at a revision, from which
// a watch can begin.
func (s *Store) List(kind trivet.Kind, after string, limit int) (records []Raw, revision int64) {
	snap := s.snapshot()
	all := recordKey(kindPart(kind), "")
	for e := range snap.under(all, all+after) {
		if records = append(records, Raw{e}); len(records) == limit {
			break
		}
	}
	return records, snap.rev
}

func (tx *Tx) info(op string, kind trivet.Kind, name string) (*kindInfo, error) {
	info := tx.store.kinds[kindPart(kind)]
	if info == nil {
		return nil, &trivet.Error{Op: op, Kind: kind, Name: name, Err: fmt.Errorf("%w: there is no such kind", trivet.ErrInvalid)}
	}
	return info, nil
}

// Raw gives a record's JSON, without its revision, as the transaction has it so far; or ErrNotFound.
func (tx *Tx) Raw(kind trivet.Kind, name string) (doc []byte, revision int64, err error) {
	info, err := tx.info("get", kind, name)
	if err != nil {
		return nil, 0, err
	}
	key := recordKey(info.part, name)
	e := tx.read(key)
	switch w := tx.writes[key]; {
	case w != nil && w.doc != nil:
		return w.doc, tx.reads[key], nil
	case w == nil && e != nil:
		return e.doc, e.rev, nil
	}
	return nil, 0, tx.fail("get", info, name, trivet.ErrNotFound)
}

// PutRaw writes a record's JSON whole: what is not in it is gone, but for the fields of its lists' elements that this version
// does not know. The caller has validated it. The store keeps kind, name, UID, Created and Generation, as with Put.
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
	h := trivet.Meta{Kind: info.kind, Name: name}
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

// withHeader sets in a record's JSON what the store keeps.
func withHeader(doc []byte, h trivet.Meta) ([]byte, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(doc, &fields); err != nil || fields == nil {
		return nil, fmt.Errorf("%w: a record is a JSON object: %v", trivet.ErrInvalid, err)
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

// Delete removes a record, or says ErrNotFound.
func (tx *Tx) Delete(kind trivet.Kind, name string) error {
	info, err := tx.info("delete", kind, name)
	if err != nil {
		return err
	}
	return tx.del(info, name)
}
