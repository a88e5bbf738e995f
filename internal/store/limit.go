package store

import (
	"errors"
	"fmt"
	"slices"

	"github.com/trivet-project/trivet"
)

// ErrLimit: there are as many records as there may be. Ask again when one of them has changed.
var ErrLimit = errors.New("limit reached")

// Limit says ErrLimit where more than most records have a key in an index, the transaction's writes so far included. So it is
// called after the Put that adds one.
//
// Lists are not compared at the commit, so the limit has a key of its own, which is read and written here: of two
// transactions that both found room, one is run again and counts the other's record. Whoever adds a record to what is counted
// asks for the limit; who takes one away need not.
func (t View[T]) Limit(by, key string, most int) error {
	at := slices.IndexFunc(t.info.indexes, func(ix index) bool { return ix.name == by })
	if at < 0 {
		panic(fmt.Sprintf("store: %s has no index %s", t.info.kind, by))
	}
	gate := recordKey(limitPart, t.info.part+"/"+by+"/"+key)
	t.tx.read(gate)
	t.tx.write(gate, &write{doc: []byte(`{"kind":"limit"}`)})
	if n := t.tx.count(t.info, t.info.indexes[at], key); n > most {
		return &trivet.Error{Op: "count", Kind: t.info.kind, Err: fmt.Errorf("%w: %d with %s %q, at most %d", ErrLimit, n, by, key, most)}
	}
	return nil
}

// count gives how many records have a key in an index as the transaction has them so far.
func (tx *Tx) count(info *kindInfo, ix index, key string) (n int) {
	for e := range tx.snap.under(indexPrefix(info.part, ix.name, key), "") {
		if tx.writes[e.key] == nil {
			n++
		}
	}
	for at, w := range tx.writes {
		if kind, _, _ := splitKey(at); kind == info.part && w.rec != nil && slices.Contains(ix.keys(w.rec), key) {
			n++
		}
	}
	return n
}
