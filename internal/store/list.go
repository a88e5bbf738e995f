package store

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/trivet-project/trivet"
)

// A decision of a transaction may rest on a list only if the commit compares the list, as it does everything else that
// the function has read. The lists of an index that is declared Compared have a key each in the store. A transaction
// that adds a record to a list writes its key, one that removes the last record deletes it, and [View.ListBy] reads
// it: if another transaction has added a record meanwhile, the function runs again. So the key exists if and only if
// the list has records, and a transaction that only adds to a list conflicts with none.

// ListBy returns copies of the records that have a key in an index which is declared Compared, in order of full name,
// including the transaction's writes so far. The commit compares that no other record was added to the list. It does
// not compare the records themselves, nor that all of them are still there: call Get for those that matter.
func (t View[T]) ListBy(index, key string) (list []*T) {
	_ = t.tx.checkRead(t.info) // fails the transaction
	for _, rec := range t.tx.list(t.info, t.info.compared(index), key) {
		list = append(list, any(t.info.copy(rec)).(*T))
	}
	return list
}

// CountBy returns how many records ListBy would return. The commit compares that no other record was added to the list.
// It visits each, and copies none.
func (t View[T]) CountBy(index, key string) (n int) {
	_ = t.tx.checkRead(t.info) // fails the transaction
	ix := t.info.compared(index)
	t.tx.read(listKey(t.info, ix, key))
	for range t.tx.members(t.info, ix, key) {
		n++
	}
	return n
}

// compared returns the index of a name. It panics if a transaction must not decide on its lists.
func (info *kindInfo) compared(name string) index {
	ix := info.index(name)
	if !ix.compared {
		panic(fmt.Sprintf("store: index %s of %s is not compared", name, info.kind))
	}
	return ix
}

// index panics if there is none of that name: an empty result would hide the mistake.
func (info *kindInfo) index(name string) index {
	at := slices.IndexFunc(info.indexes, func(ix index) bool { return ix.name == name })
	if at < 0 {
		panic(fmt.Sprintf("store: %s has no index %s", info.kind, name))
	}
	return info.indexes[at]
}

// list returns the shared records of a list as the transaction sees it, in order of full name, and reads its key.
func (tx *Tx) list(info *kindInfo, ix index, key string) []trivet.Record {
	if ix.compared {
		tx.read(listKey(info, ix, key))
	}
	all := slices.Collect(tx.members(info, ix, key))
	slices.SortFunc(all, func(a, b trivet.Record) int {
		return strings.Compare(a.Header().FullName(), b.Header().FullName())
	})
	return all
}

// members yields the shared records of a list, including the transaction's writes so far.
func (tx *Tx) members(info *kindInfo, ix index, key string) iter.Seq[trivet.Record] {
	return func(yield func(trivet.Record) bool) {
		for e := range tx.snap.listed(info, ix, key) {
			if tx.writes[e.key] == nil && !yield(e.record()) {
				return
			}
		}
		for at, w := range tx.writes {
			kind, _, _ := splitKey(at)
			if kind == info.part && w.rec != nil && slices.Contains(ix.keys(w.rec), key) && !yield(w.rec) {
				return
			}
		}
	}
}

// writeListKeys writes the keys of the lists that the transaction's writes change.
func (tx *Tx) writeListKeys() {
	for _, at := range slices.Clone(tx.order) {
		part, _, _ := splitKey(at)
		info := tx.store.kinds[part]
		if info == nil {
			continue
		}
		for _, ix := range info.indexes {
			if ix.compared {
				tx.writeListKeysOf(info, ix, ix.keysOf(tx.snap.get(at).record()), ix.keysOf(tx.writes[at].rec))
			}
		}
	}
}

func (tx *Tx) writeListKeysOf(info *kindInfo, ix index, was, is []string) {
	for _, key := range is {
		if !slices.Contains(was, key) {
			if ix.to != "" { // a deletion of the target that is committed before is noticed
				tx.read(tx.store.key(ix.to, key))
			}
			tx.write(listKey(info, ix, key), &write{doc: []byte(`{"kind":"list"}`)})
		}
	}
	for _, key := range was {
		if slices.Contains(is, key) {
			continue
		}
		empty := true
		for range tx.members(info, ix, key) {
			empty = false
			break
		}
		if empty {
			tx.read(listKey(info, ix, key))
			tx.write(listKey(info, ix, key), &write{})
		}
	}
}

func (ix index) keysOf(rec trivet.Record) []string {
	if rec == nil {
		return nil
	}
	return ix.keys(rec)
}

// isList reports whether a key is that of a list.
func isList(key string) bool { return strings.HasPrefix(key, prefix+listPart) }

func listKey(info *kindInfo, ix index, key string) string {
	return recordKey(listPart, info.part+"/"+ix.name+"/"+key)
}
