package store

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"

	"github.com/trivet-project/trivet"
)

// kindInfo describes a kind of record to the store.
type kindInfo struct {
	kind    trivet.Kind
	part    string // in keys
	typ     reflect.Type
	new     func() trivet.Record
	copy    func(trivet.Record) trivet.Record
	indexes []index
}

type index struct {
	name     string
	keys     func(trivet.Record) []string
	compared bool
}

// entry is one etcd key at one revision. It is immutable once it is in a snapshot.
type entry struct {
	key, kind, name string
	info            *kindInfo // nil for kinds without a table
	rev             int64     // ModRevision
	doc             []byte    // the record's JSON as stored, without the transaction's ID
	tx              string    // the ID of the transaction that wrote it
	rec             trivet.Record
	unknown         bool // doc has fields that rec does not have
	err             error
}

// The ID is the last field of the stored JSON, so that it is found without parsing.
const (
	idSize   = 26 // crypto/rand.Text
	txBefore = `,"tx":"`
	txAfter  = `"}`
)

// withID returns the stored value: the record's JSON with the transaction's ID.
func withID(doc []byte, id string) string {
	var b bytes.Buffer
	b.Grow(len(doc) + len(txBefore) + len(id) + len(txAfter))
	b.Write(doc[:len(doc)-1])
	b.WriteString(txBefore)
	b.WriteString(id)
	b.WriteString(txAfter)
	return b.String()
}

// cutID splits a stored value into the record's JSON and the transaction's ID.
func cutID(value []byte) (doc []byte, id string) {
	const tail = len(txBefore) + idSize + len(txAfter)
	at := len(value) - tail
	if at > 0 && string(value[at:at+len(txBefore)]) == txBefore && bytes.HasSuffix(value, []byte(txAfter)) {
		doc = make([]byte, at+1)
		copy(doc, value[:at])
		doc[at] = '}'
		return doc, string(value[at+len(txBefore) : at+len(txBefore)+idSize])
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(value, &fields) != nil || fields["tx"] == nil {
		return value, ""
	}
	_ = json.Unmarshal(fields["tx"], &id)
	delete(fields, "tx")
	doc, _ = json.Marshal(fields)
	return doc, id
}

// newEntry decodes a stored value. A value that cannot be decoded stays in the copy; reading it returns the error.
func newEntry(info *kindInfo, key, kind, name string, value []byte, rev int64) *entry {
	e := &entry{key: key, kind: kind, name: name, info: info, rev: rev}
	e.doc, e.tx = cutID(value)
	if info == nil {
		return e
	}
	e.rec, e.unknown, e.err = decode(info, e.doc)
	if e.err != nil {
		e.rec = nil
		return e
	}
	h := e.rec.Header()
	h.Kind, h.Name, h.Revision = info.kind, name, rev
	return e
}

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
	out := make([]byte, 0, len(e.doc)+32)
	out = append(out, e.doc[:len(e.doc)-1]...)
	out = append(out, `,"revision":`...)
	out = strconv.AppendInt(out, e.rev, 10)
	return append(out, '}')
}

// record returns the shared record, or nil if there is none or it cannot be decoded.
func (e *entry) record() trivet.Record {
	if e == nil {
		return nil
	}
	return e.rec
}

// typed returns the shared record, or the error that decoding it returned.
func (e *entry) typed() (trivet.Record, error) {
	if e.err != nil {
		return nil, &trivet.Error{Op: "read", Kind: e.info.kind, Name: e.name, Err: e.err}
	}
	return e.rec, nil
}

// indexPaths yields the paths of the record in the snapshot, besides its key.
func (e *entry) indexPaths(yield func(string)) {
	if e.rec == nil {
		return
	}
	for _, ix := range e.info.indexes {
		for _, key := range ix.keys(e.rec) {
			yield(indexPath(e.kind, ix.name, key, e.name))
		}
	}
}
