package store

import (
	"sync"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/keyring"
)

// The feed reads what this head's own transactions write, too: their values need neither be decrypted nor decoded
// again. While a transaction is in progress, the head holds what it sends by key. A value is taken for that only if it
// has the same bytes and is in the place for which they were encrypted, so that it would authenticate: see value.go.

// ownWrites are the values that this head's transactions send.
type ownWrites struct {
	mu    sync.Mutex
	byKey map[string]*ownWrite // guarded by mu; of several transactions, that of the last one
}

// ownWrite is the value of one key.
type ownWrite struct {
	key              string
	sealed           string
	created, version int64 // see Store.place
	value            value
	// rec is the record as it would be decoded, without its header; guarded by ownWrites.mu. nil: it is decoded.
	rec trivet.Record
}

func (o *ownWrites) add(all []*ownWrite) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, w := range all {
		o.byKey[w.key] = w
	}
}

func (o *ownWrites) remove(all []*ownWrite) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, w := range all {
		if o.byKey[w.key] == w {
			delete(o.byKey, w.key)
		}
	}
}

// find returns what a stored value contains, if this head is writing it. The record is returned once, since its new
// owner changes its header.
func (o *ownWrites) find(key string, kv *mvccpb.KeyValue) (v value, rec trivet.Record, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	w := o.byKey[key]
	if w == nil || w.version != kv.Version || w.version > 1 && w.created != kv.CreateRevision ||
		w.sealed != string(kv.Value) {
		return value{}, nil, false
	}
	rec, w.rec = w.rec, nil
	return w.value, rec, true
}

// own returns what the feed finds of a write, whose value was encrypted in the place of was.
func (tx *Tx) own(key string, w *write, was *entry, v value, sealed string, with keyring.ID) *ownWrite {
	v.key = with
	o := &ownWrite{key: key, sealed: sealed, version: 1, value: v}
	if was != nil {
		o.created, o.version = was.created, was.version+1
	}
	if isHistory(key) || w.unknown {
		return o
	}
	switch of := w.specOf; {
	case of != nil && !of.unknown && of.isDecoded():
		o.rec = tx.specAlone(key, of.rec)
	case of == nil && w.isDecoded():
		o.rec = w.rec
	}
	return o
}

// isDecoded makes the written record as it would be decoded, and reports whether it is.
func (w *write) isDecoded() bool {
	if !w.checked {
		w.checked, w.decoded = true, w.rec != nil && asDecoded(w.rec)
	}
	return w.decoded
}

// specAlone returns a record that has only the spec of another one.
func (tx *Tx) specAlone(key string, rec trivet.Record) trivet.Record {
	info := tx.store.kinds[kindPart(trivet.KindOf(rec))]
	if info == nil {
		return nil
	}
	alone := info.new()
	specField(alone).Set(specField(rec))
	return alone
}
