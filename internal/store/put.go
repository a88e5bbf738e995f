package store

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"reflect"
	"time"

	"github.com/trivet-project/trivet"
)

// put writes a record over the stored one.
func (tx *Tx) put(op string, info *kindInfo, rec trivet.Record) error {
	h := rec.Header()
	h.Kind = info.kind
	name := h.FullName()
	if err := rec.Validate(); err != nil {
		return tx.fail(op, info, name, err)
	}
	old, err := tx.stored(op, info, name, h.Revision)
	if err != nil {
		return err
	}
	if err := tx.fillHeader(h, old); err != nil {
		return tx.fail(op, info, name, err)
	}
	tx.fillUIDs(info, rec)
	w, err := encodeChanged(info, rec, old)
	if err != nil {
		return tx.fail(op, info, name, err)
	}
	w.rec = info.copy(rec)
	return tx.putDoc(op, info, name, w, old)
}

// stored returns what a put replaces: a write of this transaction, the stored record, or nil.
func (tx *Tx) stored(op string, info *kindInfo, name string, rev int64) (*entry, error) {
	key := info.key(name)
	if err := info.validateName(name); err != nil {
		return nil, tx.fail(op, info, name, err)
	}
	if err := tx.checkWrite(info); err != nil {
		return nil, tx.fail(op, info, name, err)
	}
	e := tx.read(key)
	if e != nil && e.refused() && info.cold() {
		e = nil // history that cannot be read prevents nothing
	}
	if now := tx.changeOf(key); rev != 0 && rev != now {
		return nil, tx.fail(op, info, name, fmt.Errorf("%w: it was read at revision %d and is now at %d",
			trivet.ErrConflict, rev, now))
	}
	if w := tx.writes[key]; w != nil {
		if w.doc == nil {
			return nil, nil
		}
		_, unknown, err := decode(info, w.doc)
		return &entry{plain: w.doc, length: len(w.doc), rec: w.rec, unknown: unknown}, err
	}
	return e, nil
}

// fillHeader sets the header fields that the store controls. The creator of a record may choose its UID, by which it
// recognizes its own record if the response to the creation was lost.
func (tx *Tx) fillHeader(h *trivet.Meta, old *entry) error {
	if old == nil {
		h.UID, h.Generation = cmp.Or(h.UID, rand.Text()), 1
		h.Created = tx.store.opts.Now().UTC().Truncate(time.Millisecond)
		return nil
	}
	if old.err != nil {
		return old.err
	}
	was := old.record().Header()
	h.UID, h.Created, h.Generation = was.UID, was.Created, was.Generation
	return nil
}

// encodeChanged is encode, of a record whose generation counts a change of the spec.
func encodeChanged(info *kindInfo, rec trivet.Record, old *entry) (*write, error) {
	w, err := encode(info, rec, old)
	if err == nil && old != nil && !sameSpecField(old.record(), rec) && !sameSpec(old.full(), w.doc) {
		rec.Header().Generation++
		w, err = encode(info, rec, old)
	}
	return w, err
}

// encode returns what to store: the record's JSON, and the stored fields that this version does not know.
func encode(info *kindInfo, rec trivet.Record, old *entry) (*write, error) {
	if old != nil && old.spec != nil && !old.unknown && sameSpecField(old.record(), rec) {
		return encodeStatus(rec, old)
	}
	h := rec.Header()
	rev := h.Revision
	h.Revision = 0 // it is not stored
	doc, err := json.Marshal(rec)
	h.Revision = rev
	if err == nil && old != nil && old.unknown {
		doc, err = keepUnknown(info.typ, old.full(), doc)
	}
	return &write{doc: doc, unknown: old != nil && old.unknown}, err
}

// putDoc writes an encoded record if it differs from the stored one.
func (tx *Tx) putDoc(op string, info *kindInfo, name string, w *write, old *entry) error {
	doc := w.doc
	if old != nil && bytes.Equal(old.full(), doc) {
		return nil
	}
	if len(doc) > trivet.MaxRecord {
		return tx.fail(op, info, name, fmt.Errorf("%w: its JSON has %d bytes; the maximum is %d",
			trivet.ErrTooLarge, len(doc), trivet.MaxRecord))
	}
	if err := tx.checkRelease(info, doc); err != nil {
		return tx.fail(op, info, name, err)
	}
	tx.write(info.key(name), w)
	return nil
}

// del removes a record.
func (tx *Tx) del(info *kindInfo, name string) error {
	if err := tx.checkWrite(info); err != nil {
		return tx.fail("delete", info, name, err)
	}
	if info.cold() {
		return tx.fail("delete", info, name, fmt.Errorf("%w: it is history", trivet.ErrInvalid))
	}
	key := info.key(name)
	e, w := tx.read(key), tx.writes[key]
	if e == nil && w == nil || w != nil && w.doc == nil {
		return tx.fail("delete", info, name, trivet.ErrNotFound)
	}
	tx.write(key, &write{})
	return nil
}

// sameSpecField reports whether two records have equal specs in memory, and so in JSON, since unknown fields are
// kept. Most writes change only the status, and this is much cheaper than decoding two documents.
func sameSpecField(a, b trivet.Record) bool {
	x, y := specField(a), specField(b)
	return x.IsValid() && y.IsValid() && reflect.DeepEqual(x.Interface(), y.Interface())
}

// sameSpec reports whether the JSON of two records has the same spec.
func sameSpec(a, b []byte) bool {
	x, y := specOf(a), specOf(b)
	if bytes.Equal(x, y) {
		return true
	}
	v, errV := parse(x)
	w, errW := parse(y)
	return errV == nil && errW == nil && reflect.DeepEqual(v, w)
}

func specOf(doc []byte) []byte {
	var d struct{ Spec json.RawMessage }
	if json.Unmarshal(doc, &d) != nil || d.Spec == nil {
		return []byte("null")
	}
	return d.Spec
}

// parse decodes JSON with numbers as json.Number.
func parse(doc []byte) (any, error) {
	dec := json.NewDecoder(bytes.NewReader(doc))
	dec.UseNumber()
	var v any
	err := dec.Decode(&v)
	return v, err
}
