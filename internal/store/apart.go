package store

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/trivet-project/trivet"
)

// The spec of a kind whose status is written often may have a key of its own: see [trivet.KindInfo.SpecApart]. The
// record's own key then has its JSON with null in the place of the spec, and the ID of the transaction that wrote the
// spec, which is encrypted and authenticated with it. So a write of the status has the size of the status, and neither
// value can be replaced by one that does not belong to the other.
//
// A transaction that writes both writes the spec first: the feed, which reads the changes of a revision in their order,
// knows it when it reads the record. In the copy the record is whole: readers, watchers and transactions know nothing
// of this. A record that has its spec with it, as written before the heads had this release, is separated when it is
// written next.

// specKey returns the key of the spec of the record at a key. It is before the record's in the order of keys.
func specKey(key string) string { return prefix + specPart + strings.TrimPrefix(key, prefix) }

// specRef says where a record's spec is. The zero value: in its JSON.
type specRef struct {
	tx txID // of the transaction that wrote the spec
	at int  // where null is in the JSON in place of it
}

func (r specRef) apart() bool { return r.tx != txID{} }

const null = "null"

// specs finds the spec of an entry that was read at a revision; nil: there is none.
type specs func(e *entry) *entry

// specsIn finds the specs of a snapshot that is not published yet. One whose key this head got since is read again.
func (s *Store) specsIn(next *snapshot) specs {
	return func(e *entry) *entry {
		spec := next.get(specKey(e.key))
		if spec == nil || spec.err != errNoKey || !s.opts.Cipher.Has(spec.sealed) {
			return spec
		}
		ctx, cancel := s.bounded(context.Background())
		defer cancel()
		found, err := s.client.Get(ctx, spec.key, clientv3.WithSerializable())
		if err == nil && len(found.Kvs) > 0 && found.Kvs[0].ModRevision == spec.mod {
			spec = s.read(found.Kvs[0], nil)
			s.refusals.forget(next.put(spec))
			s.refusals.note(spec)
			s.sealed.add(spec)
		}
		return spec
	}
}

// errSpec: the values of a record and of its spec do not belong together.
var errSpec = fmt.Errorf("%w: its spec is missing, or that of another write", ErrRefused)

// join gives the entry of a record its spec.
func (e *entry) join(spec *entry) {
	switch at := e.ref.at; {
	case spec != nil && spec.refused():
		e.err = spec.err
	case spec == nil || spec.tx != e.ref.tx || !hasNull(e.doc(), at):
		e.err = errSpec
	default:
		e.spec, e.err = spec, spec.err
	}
}

func hasNull(doc []byte, at int) bool {
	return at+len(null) <= len(doc) && string(doc[at:at+len(null)]) == null
}

// decodeSpec reads the spec of a record into an empty record of its kind.
func (e *entry) decodeSpec(kinds map[string]*kindInfo) {
	part, _, _ := strings.Cut(e.name, "/")
	info := kinds[part]
	if info == nil {
		return
	}
	rec := e.rec // this head is writing it
	if e.rec = nil; rec == nil {
		rec, e.unknown, e.err = decode(info, slices.Concat([]byte(`{"spec":`), e.doc(), []byte(`}`)))
	}
	if e.err == nil {
		e.setDecoded(rec)
	}
}

// full returns the record's JSON as if its spec were not apart.
func (e *entry) full() []byte {
	if e.spec == nil {
		return e.doc()
	}
	return splice(e.doc(), e.ref.at, e.spec.doc())
}

// size returns the length of the record's JSON.
func (e *entry) size() int {
	if e.spec == nil {
		return e.length
	}
	return e.length - len(null) + e.spec.length
}

// splice returns a record's JSON with its spec in place of null.
func splice(doc []byte, at int, spec []byte) []byte {
	return slices.Concat(doc[:at], spec, doc[at+len(null):])
}

// cut returns a record's JSON with null in place of its spec, and the spec. ok is false where it has none.
func cut(doc []byte) (rest []byte, at int, spec []byte, ok bool) {
	dec := json.NewDecoder(bytes.NewReader(doc))
	if _, err := dec.Token(); err != nil {
		return nil, 0, nil, false
	}
	for dec.More() {
		name, err := dec.Token()
		if err != nil || dec.Decode((*json.RawMessage)(&spec)) != nil {
			break
		}
		if end := int(dec.InputOffset()); name == "spec" {
			at = end - len(spec)
			return slices.Concat(doc[:at], []byte(null), doc[end:]), at, spec, true
		}
	}
	return nil, 0, nil, false
}

// specField returns the field of a record that is its spec.
func specField(rec trivet.Record) reflect.Value {
	return reflect.ValueOf(rec).Elem().FieldByName("Spec")
}

// encodeStatus is encode for a record that has the same spec as the stored one, which is apart and is not encoded
// again.
func encodeStatus(rec trivet.Record, old *entry) (*write, error) {
	shallow := reflect.New(reflect.TypeOf(rec).Elem())
	shallow.Elem().Set(reflect.ValueOf(rec).Elem())
	bare := shallow.Interface().(trivet.Record)
	specField(bare).SetZero()
	bare.Header().Revision = 0
	doc, err := json.Marshal(bare)
	if err != nil {
		return nil, err
	}
	rest, at, _, _ := cut(doc)
	return &write{doc: splice(rest, at, old.spec.doc()), rest: rest, ref: specRef{old.ref.tx, at}}, nil
}

// separateSpecs makes the specs of the records that the transaction writes writes of their own, each before its record.
// A spec that is apart and has not changed is not written, unless what is stored is not what the copy has.
func (tx *Tx) separateSpecs() {
	for _, key := range slices.Clone(tx.order) {
		part, _, _ := splitKey(key)
		if info := tx.store.kinds[part]; info != nil && info.specApart != "" && !isHistory(key) {
			tx.separateSpec(info, key, tx.writes[key])
		}
	}
}

func (tx *Tx) separateSpec(info *kindInfo, key string, w *write) {
	to, old := specKey(key), tx.entry(key)
	stored := tx.entry(to)
	if w.doc == nil {
		if stored != nil {
			tx.write(to, &write{})
		}
		return
	}
	isApart := old != nil && old.ref.apart()
	held := isApart && old.spec != nil && stored != nil && stored.tx == old.ref.tx
	if held && w.rest != nil || !isApart && info.specApart.Compare(tx.ClusterVersion()) > 0 {
		return
	}
	rest, at, spec, ok := cut(w.doc)
	switch {
	case !ok:
	case held && bytes.Equal(spec, old.spec.doc()):
		w.rest, w.ref = rest, specRef{old.ref.tx, at}
	default:
		w.rest, w.ref = rest, specRef{tx.id, at}
		tx.writes[to] = &write{doc: spec, specOf: w}
		tx.order = slices.Insert(tx.order, slices.Index(tx.order, key), to)
	}
}

// specsAt finds the specs of entries as they were at a revision that may be older than the copy. err is the first
// error.
func (w *Watcher) specsAt(ctx context.Context, revision int64, err *error) specs {
	s := w.store
	return func(e *entry) *entry {
		key := specKey(e.key)
		if now := s.snapshot().get(key); now != nil && now.tx == e.ref.tx {
			return now
		}
		found, failed := s.getAt(ctx, key, revision)
		switch {
		case errors.Is(failed, rpctypes.ErrCompacted):
			failed = fmt.Errorf("%w: %w", trivet.ErrCompacted, failed)
		case failed != nil:
			failed = unavailable(failed)
		case len(found.Kvs) > 0:
			w.bytes += len(found.Kvs[0].Value)
			return s.read(found.Kvs[0], nil)
		}
		if *err == nil {
			*err = failed
		}
		return nil
	}
}
