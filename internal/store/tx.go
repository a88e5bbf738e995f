package store

import (
	"context"
	"fmt"

	"github.com/trivet-project/trivet"
)

// Limits of one transaction: those of etcd, less what the store itself adds.
const (
	MaxOps   = 120       // records read, and records written
	MaxBytes = 1_400_000 // of all records written
)

// Tx is one run of a transaction's function: the snapshot that it reads, and its writes. It must be used by one
// goroutine and not after the function has returned.
type Tx struct {
	ctx    context.Context // of reads of cold kinds
	store  *Store
	id     txID
	snap   *snapshot
	reads  map[string]int64 // by key: the ModRevision that the commit compares; 0: absent
	writes map[string]*write
	order  []string // of writes
	scope  *Scope
	// outOfScope is the first read or write outside scope.
	outOfScope error
	pages      map[string]*coldPage // of cold kinds: those that were read, by key
	coldErr    error                // of the first that could not be read
	committed  []func()             // see AfterCommit
	sent       []*ownWrite          // what the commit sends
}

// write is the new value of a key.
type write struct {
	doc  []byte // nil: deleted
	rest []byte // doc without the spec, where that is apart
	ref  specRef
	rec  trivet.Record // a copy of the record that was put
	end  string        // of the keys that are deleted; empty: it is one key
	// unknown: doc may have fields that rec does not have.
	unknown bool
	specOf  *write // doc is the spec of that record
	// checked and decoded are the result of isDecoded.
	checked, decoded bool
	// changed is the revision of the last change of a record that is moved; 0: this is one.
	changed int64
}

// value returns what is stored.
func (w *write) value(id txID) value {
	if w.ref.apart() {
		return value{doc: w.rest, tx: id, spec: w.ref}
	}
	return value{doc: w.doc, tx: id, changed: w.changed}
}

func (s *Store) begin(ctx context.Context, snap *snapshot, id txID) *Tx {
	return &Tx{ctx: ctx, store: s, id: id, snap: snap, reads: map[string]int64{}, writes: map[string]*write{},
		pages: map[string]*coldPage{}}
}

// Context returns the context of the transaction.
func (tx *Tx) Context() context.Context { return tx.ctx }

// Revision returns the revision of the snapshot that the function reads.
func (tx *Tx) Revision() int64 { return tx.snap.rev }

// read returns the entry of a key, which the commit will compare.
func (tx *Tx) read(key string) *entry {
	e := tx.entry(key)
	tx.reads[key] = 0
	if e != nil {
		tx.reads[key] = e.mod
	}
	if page, _, ok := cutSlot(key); ok { // the record may be in the page's key
		tx.read(page)
	}
	return e
}

// changeOf returns the revision of a key's last change, or 0 if the key is absent.
func (tx *Tx) changeOf(key string) int64 {
	if e := tx.entry(key); e != nil {
		return e.rev
	}
	return 0
}

// growth returns how many records the transaction adds, and by how many bytes it makes all records together larger.
// The store's own keys, such as leases, do not count, and neither does history, which has bounds of its own.
func (tx *Tx) growth() (added int, bytes int64) {
	for key, w := range tx.writes {
		if part, _, _ := splitKey(key); tx.store.kinds[part] == nil || isHistory(key) {
			continue
		}
		if old := tx.entry(key); old != nil {
			added, bytes = added-1, bytes-int64(old.size())
		}
		if w.doc != nil {
			added, bytes = added+1, bytes+int64(len(w.doc))
		}
	}
	return added, bytes
}

func (tx *Tx) write(key string, w *write) {
	if _, written := tx.writes[key]; !written {
		tx.order = append(tx.order, key)
	}
	tx.writes[key] = w
}

// get returns a copy of a record, including the transaction's writes so far.
func (tx *Tx) get(info *kindInfo, name string) (trivet.Record, error) {
	if err := tx.checkRead(info); err != nil {
		return nil, tx.fail("get", info, name, err)
	}
	key := info.key(name)
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
	return &trivet.Error{Op: op, Kind: info.kind, Name: trivet.ShortName(name), Err: err}
}

// In returns the table as seen by a transaction.
func (t *Table[T]) In(tx *Tx) View[T] { return View[T]{tx, t.info} }

// View is a table within a transaction. The commit compares each record that Get returned or found absent, and each
// list that ListBy returned: these are what a decision may rest on.
type View[T any] struct {
	tx   *Tx
	info *kindInfo
}

// Get returns a copy of a record, or ErrNotFound.
func (t View[T]) Get(name string) (*T, error) {
	rec, err := t.tx.get(t.info, name)
	if err != nil {
		return nil, err
	}
	return any(rec).(*T), nil
}

// Put creates or replaces a record. It sets the record's UID, Created and Generation, which increases with each
// change of the spec. Fields of the stored record that this version does not know are kept. An unchanged record is
// not written. Errors: ErrInvalid if the record is not valid; ErrConflict if it has a Revision that is not the
// current one.
func (t View[T]) Put(v *T) error { return t.tx.put("put", t.info, any(v).(trivet.Record)) }

// Create writes a new record, or returns ErrExists.
func (t View[T]) Create(v *T) error {
	rec := any(v).(trivet.Record)
	if _, err := t.tx.get(t.info, rec.Header().FullName()); err == nil {
		return t.tx.fail("create", t.info, rec.Header().FullName(), trivet.ErrExists)
	}
	return t.tx.put("create", t.info, rec)
}

// Delete removes a record, or returns ErrNotFound.
func (t View[T]) Delete(name string) error { return t.tx.del(t.info, name) }

// Expect returns a record as Get does, or ErrConflict if its generation is not the expected one.
func (t View[T]) Expect(name string, generation int64) (*T, error) {
	v, err := t.Get(name)
	if err != nil {
		return nil, err
	}
	if is := any(v).(trivet.Record).Header().Generation; is != generation {
		return nil, t.tx.fail("change", t.info, name, fmt.Errorf("%w: its spec now has generation %d, not %d",
			trivet.ErrConflict, is, generation))
	}
	return v, nil
}
