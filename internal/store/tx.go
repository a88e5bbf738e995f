package store

import (
	"fmt"
	"iter"

	"github.com/trivet-project/trivet"
)

// What etcd takes in one transaction, less what the store itself adds.
const (
	MaxOps   = 120       // records read, and records written
	MaxBytes = 1_400_000 // of all records written
)

// Tx is one run of a transaction's function: the snapshot that it reads, and what it writes. It is for one goroutine and ends
// with the function.
type Tx struct {
	store  *Store
	snap   *snapshot
	reads  map[string]int64 // by key: the ModRevision that the commit compares; 0: absent
	writes map[string]*write
	order  []string // of writes
}

// write is what shall become of a key.
type write struct {
	doc []byte        // nil: deleted
	rec trivet.Record // a copy of what was put
}

func (s *Store) begin(snap *snapshot) *Tx {
	return &Tx{store: s, snap: snap, reads: map[string]int64{}, writes: map[string]*write{}}
}

// Revision is that of the snapshot which the function sees.
func (tx *Tx) Revision() int64 { return tx.snap.rev }

// read gives what stands under a key, which the commit will compare.
func (tx *Tx) read(key string) *entry {
	e := tx.snap.get(key)
	tx.reads[key] = 0
	if e != nil {
		tx.reads[key] = e.rev
	}
	return e
}

func (tx *Tx) write(key string, w *write) {
	if _, twice := tx.writes[key]; !twice {
		tx.order = append(tx.order, key)
	}
	tx.writes[key] = w
}

// get gives a copy of a record as the transaction has it so far.
func (tx *Tx) get(info *kindInfo, name string) (trivet.Record, error) {
	key := recordKey(info.part, name)
	e := tx.read(key)
	if w := tx.writes[key]; w != nil {
		if w.doc == nil {
			return nil, tx.fail("get", info, name, trivet.ErrNotFound)
		}
		return info.copy(w.rec), nil
	}
	if e == nil {
		return nil, tx.fail("get", info, name, trivet.ErrNotFound)
	}
	rec, err := e.typed()
	if err != nil {
		return nil, err
	}
	return info.copy(rec), nil
}

func (tx *Tx) fail(op string, info *kindInfo, name string, err error) error {
	return &trivet.Error{Op: op, Kind: info.kind, Name: name, Err: err}
}

// In gives the table as a transaction sees it.
func (t *Table[T]) In(tx *Tx) View[T] { return View[T]{tx, t.info} }

// View is a table within a transaction. Get is what a decision rests on: the commit compares each record that was got,
// also one that was absent. List and By see the same snapshot, with the transaction's own writes left out, and are not
// compared: get those records that matter. A limit over many records is a record of its own (see [View.Limit]).
type View[T any] struct {
	tx   *Tx
	info *kindInfo
}

// Get gives a record, or ErrNotFound.
func (t View[T]) Get(name string) (*T, error) {
	rec, err := t.tx.get(t.info, name)
	if err != nil {
		return nil, err
	}
	return any(rec).(*T), nil
}

// List gives all records of the snapshot, by name.
func (t View[T]) List() []*T { return copies(t.AllShared()) }

// AllShared gives all records of the snapshot by name, not to be changed.
func (t View[T]) AllShared() iter.Seq[*T] { return all[T](t.tx.snap, t.info) }

// ListBy gives the records of the snapshot that have a key in an index, by name.
func (t View[T]) ListBy(index, key string) []*T {
	return copies(by[T](t.tx.snap, t.info, index, key))
}

// Put writes a record, whether or not there is one of its name. It sets the record's UID, Created and Generation, which
// rises with each change of spec. Fields of the stored record that this version does not know are kept.
// A record that would not change is not written. One that is not valid is refused: ErrInvalid.
// A record with a Revision that is no longer the current one was read elsewhere: ErrConflict.
func (t View[T]) Put(v *T) error { return t.tx.put("put", t.info, any(v).(trivet.Record)) }

// Create writes a record that is not there yet; ErrExists if one is.
func (t View[T]) Create(v *T) error {
	rec := any(v).(trivet.Record)
	if _, err := t.tx.get(t.info, rec.Header().Name); err == nil {
		return t.tx.fail("create", t.info, rec.Header().Name, trivet.ErrExists)
	}
	return t.tx.put("create", t.info, rec)
}

// Delete removes a record, or says ErrNotFound.
func (t View[T]) Delete(name string) error { return t.tx.del(t.info, name) }

// Expect gives a record as Get does, and ErrConflict where its spec has another generation than the one that was seen.
func (t View[T]) Expect(name string, generation int64) (*T, error) {
	v, err := t.Get(name)
	if err != nil {
		return nil, err
	}
	if is := any(v).(trivet.Record).Header().Generation; is != generation {
		return nil, t.tx.fail("change", t.info, name, fmt.Errorf("%w: its spec has generation %d now, not %d", trivet.ErrConflict, is, generation))
	}
	return v, nil
}
