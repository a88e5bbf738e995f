package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"sync/atomic"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/keyring"
)

// kindInfo describes a kind of record to the store.
type kindInfo struct {
	kind    trivet.Kind
	part    string // in keys
	scope   trivet.Scope
	typ     reflect.Type
	new     func() trivet.Record
	copy    func(trivet.Record) trivet.Record
	indexes []index
	refs    []trivet.Reference
	tallies []tally
	// under is set for cold kinds: see NewColdTable.
	under  func(value func(field string) string) string
	former *former // nil: there are no former records

	since       trivet.Release
	fieldsSince map[string]trivet.Release
	specApart   trivet.Release // since which the specs have keys of their own; empty: they do not

	rests func(trivet.Record) bool // whether a record is at rest; nil: none is
	awake *awake                   // those of them that are decoded
}

// cold reports whether the records are history, which the copy does not hold: see coldkind.go.
func (info *kindInfo) cold() bool { return info.under != nil }

type index struct {
	name      string
	keys      func(trivet.Record) []string
	compared  bool
	to        trivet.Kind // of an index of references: what they refer to
	field     string      // whose values the keys are; empty: none
	inProject bool
}

// entry is one etcd key at one revision. It is immutable once it is in a snapshot.
type entry struct {
	key, kind, name string    // name is the full one
	info            *kindInfo // nil for kinds without a table
	rev             int64     // of the record's last change, which readers see
	mod             int64     // ModRevision, which transactions compare; another one than rev if the value was resealed
	created         int64     // CreateRevision
	version         int64     // number of writes since it was created
	plain           []byte    // the record's JSON; nil: see packed, or the value was refused
	packed          []byte    // the same as it is stored
	length          int       // of the JSON
	ref             specRef   // where its spec is
	spec            *entry    // the spec that is apart, or nil
	tx              txID      // of the transaction that wrote it
	sealed          keyring.ID
	rec             trivet.Record
	decoded         atomic.Pointer[trivet.Record] // instead of rec, of a spec and where resting; nil: it is to be decoded
	resting         bool                          // see rest.go
	unknown         bool                          // the JSON has fields that the record does not have
	err             error
}

// doc returns the record's JSON, without its spec where that is apart; nil if the value was refused.
func (e *entry) doc() []byte {
	if e.plain != nil || e.packed == nil {
		return e.plain
	}
	doc, _ := unpack(e.packed) // it was unpacked when the value was read
	return doc
}

// keep makes an entry of the copy as small as it can be.
func (e *entry) keep() {
	if e.packed != nil {
		e.plain = nil
	}
}

// isSpec reports whether the entry is a record's spec that is apart.
func (e *entry) isSpec() bool { return e.kind+"/" == specPart }

// findSpec gives the entry its spec, if that is apart.
func (e *entry) findSpec(find specs) {
	if e.err == nil && e.ref.apart() {
		e.join(find(e))
	}
}

// decodeWith decodes the entry's record or spec. One that cannot be decoded stays in the copy; reading it returns the
// error. Of one that does not authenticate nothing is used but its revisions.
func (e *entry) decodeWith(kinds map[string]*kindInfo) {
	switch {
	case e.err != nil:
		e.rec = nil
	case e.info != nil:
		e.decode()
	case e.isSpec():
		e.decodeSpec(kinds)
	}
}

// openEntry reads a stored value without its record, unless this head is writing it.
func (s *Store) openEntry(key, kind, name string, kv *mvccpb.KeyValue) *entry {
	e := &entry{key: key, kind: kind, name: name, info: s.kinds[kind],
		rev: kv.ModRevision, mod: kv.ModRevision, created: kv.CreateRevision, version: kv.Version}
	v, rec, own := s.own.find(key, kv)
	var err error
	if !own {
		v, err = s.open(key, kv)
	}
	e.rec = rec
	e.plain, e.packed, e.length = v.doc, v.packed, len(v.doc)
	e.ref, e.tx, e.sealed, e.err = v.spec, v.tx, v.key, err
	if v.changed != 0 {
		e.rev = v.changed
	}
	return e
}

// decode reads the record.
func (e *entry) decode() {
	if e.rec, e.unknown, e.err = e.decodeRecord(e.rec); e.err != nil {
		e.rec = nil
		return
	}
	if e.resting = e.info.rests != nil && e.info.rests(e.rec); e.resting {
		e.setDecoded(e.rec)
		e.rec = nil
	}
}

// decodeRecord returns the record. own is the one that this head is writing; nil where it is not.
func (e *entry) decodeRecord(own trivet.Record) (rec trivet.Record, unknown bool, err error) {
	var spec trivet.Record
	doc := e.doc()
	if e.spec != nil {
		if spec = e.spec.getDecoded(); spec == nil { // its record was at rest
			doc = e.full()
		}
	}
	if rec = own; rec == nil {
		rec, unknown, err = decode(e.info, doc)
	}
	if err != nil {
		return nil, false, err
	}
	if spec != nil {
		specField(rec).Set(specField(spec)) // shared, as all records of the copy
		unknown = unknown || e.spec.unknown
	}
	h := rec.Header()
	h.Kind, h.Revision = e.info.kind, e.rev
	h.Project, h.Name = e.info.split(e.name)
	return rec, unknown, nil
}

// decodeOnce reads the record of a cold kind, unless that was done or its value was refused.
func (e *entry) decodeOnce() {
	if e != nil && e.info != nil && e.rec == nil && !e.resting && e.err == nil {
		e.decode()
	}
}

// refused reports whether the value did not authenticate. For readers and watchers it is as if there were no record;
// transactions that read it fail.
func (e *entry) refused() bool { return errors.Is(e.err, ErrRefused) }

// decode reads a record's JSON and reports whether it has fields that the Go type does not have.
func decode(info *kindInfo, doc []byte) (rec trivet.Record, unknown bool, err error) {
	rec = info.new()
	strict := json.NewDecoder(bytes.NewReader(doc))
	strict.DisallowUnknownFields()
	if strict.Decode(rec) == nil {
		return rec, false, nil
	}
	rec = info.new()
	if err := json.Unmarshal(doc, rec); err != nil {
		return nil, false, fmt.Errorf("stored %s cannot be read: %w: %w", info.kind, trivet.ErrInvalid, err)
	}
	return rec, true, nil
}

// json returns the record's JSON for readers, with its revision and with unknown fields.
func (e *entry) json() []byte {
	doc := e.full()
	out := make([]byte, 0, len(doc)+32)
	out = append(out, doc[:len(doc)-1]...)
	out = append(out, `,"revision":`...)
	out = strconv.AppendInt(out, e.rev, 10)
	return append(out, '}')
}

// record returns the shared record, or nil if there is none or it cannot be decoded.
func (e *entry) record() trivet.Record {
	switch {
	case e == nil:
		return nil
	case e.resting:
		return e.wake()
	}
	return e.rec
}

// typed returns the shared record, or the error that reading it returned.
func (e *entry) typed() (trivet.Record, error) {
	if e.err != nil {
		return nil, e.fail("read")
	}
	return e.record(), nil
}

// fail returns the error of an entry that cannot be read.
func (e *entry) fail(op string) error {
	err := &trivet.Error{Op: op, Kind: trivet.Kind(e.kind), Name: trivet.ShortName(e.name), Err: e.err}
	if e.info != nil {
		err.Kind = e.info.kind
	}
	if e.refused() {
		err.Hint = hintRefused
	}
	return err
}
