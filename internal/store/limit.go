package store

import (
	"errors"
	"fmt"
	"slices"

	"github.com/trivet-project/trivet"
)

// ErrLimit: the limit on the number of records is reached. Retry when one of them has changed.
var ErrLimit = errors.New("limit reached")

// Limit returns ErrLimit if more than most records have a key in an index, including the transaction's writes so far.
// Call it after the Put that adds a record.
//
// Lists are not compared at commit, so the limit has a key of its own, which is read and written here: of two
// concurrent transactions that are both below the limit, one runs again and counts the other's record. A transaction
// that adds a counted record must call Limit; one that removes a record need not.
func (t View[T]) Limit(by, key string, most int) error {
	at := slices.IndexFunc(t.info.indexes, func(ix index) bool { return ix.name == by })
	if at < 0 {
		panic(fmt.Sprintf("store: %s has no index %s", t.info.kind, by))
	}
	guard := recordKey(limitPart, t.info.part+"/"+by+"/"+key)
	t.tx.read(guard)
	t.tx.write(guard, &write{doc: []byte(`{"kind":"limit"}`)})
	if n := t.tx.count(t.info, t.info.indexes[at], key); n > most {
		return &trivet.Error{Op: "count", Kind: t.info.kind,
			Err: fmt.Errorf("%w: %d with %s %q; the maximum is %d", ErrLimit, n, by, key, most)}
	}
	return nil
}

// count returns how many records have a key in an index, including the transaction's writes so far.
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
