package store

import (
	"iter"
	"reflect"
	"slices"

	"github.com/trivet-project/trivet"
)

// Table is the records of one kind. Get, List and ListBy return copies. GetShared, AllShared and SharedBy return the
// records of the local copy, which all readers share: they must not be modified. Names are full names.
type Table[T any] struct {
	store *Store
	info  *kindInfo
	scope *Scope // of local reads; nil: not limited
}

// Index finds the records of a kind by keys that it computes from each record, such as a machine's MACs.
type Index[T any] struct {
	Name string
	Keys func(*T) []string // pure; must not modify the record
	// Field is the field of the JSON whose values are the keys, as "spec.machine"; empty: it is none. Lists that are
	// selected by it are read by key.
	Field string
	// InProject: the field refers to a record of the same project, and the key is the full name of that one.
	InProject bool
	// Compared: transactions may decide on its lists (see [View.ListBy]). Each list that has records costs a key.
	Compared bool
}

// NewTable adds a table to a store. All tables are added before the store is started.
func NewTable[T any, P interface {
	*T
	trivet.Record
}](s *Store, indexes ...Index[T]) *Table[T] {
	info := newKind[T, P]()
	for _, ix := range indexes {
		keys := func(r trivet.Record) []string { return ix.Keys((*T)(r.(P))) }
		info.indexes = append(info.indexes, index{name: ix.Name, keys: keys, compared: ix.Compared, field: ix.Field,
			inProject: ix.InProject})
	}
	s.addKind(info)
	return &Table[T]{store: s, info: info}
}

func newKind[T any, P interface {
	*T
	trivet.Record
}]() *kindInfo {
	kind := trivet.KindOf(P(new(T)))
	return &kindInfo{
		kind: kind, part: kindPart(kind), scope: trivet.ScopeOf(kind), typ: reflect.TypeFor[T](),
		new:  func() trivet.Record { return P(new(T)) },
		copy: func(r trivet.Record) trivet.Record { return P(deepCopy((*T)(r.(P)))) },
	}
}

// addKind adds the kind of a table.
func (s *Store) addKind(info *kindInfo) {
	info.addReferences()
	if s.started || s.kinds[info.part] != nil {
		panic("store: table of " + string(info.kind) + " added twice or after the start")
	}
	s.kinds[info.part] = info
}

// Get returns a copy of a record, or ErrNotFound.
func (t *Table[T]) Get(name string) (*T, error) {
	v, err := t.GetShared(name)
	if err != nil {
		return nil, err
	}
	return deepCopy(v), nil
}

// GetShared returns a shared record, or ErrNotFound.
func (t *Table[T]) GetShared(name string) (*T, error) {
	t.checkRead()
	e := t.store.snapshot().get(t.info.key(name))
	if e == nil {
		return nil, &trivet.Error{Op: "get", Kind: t.info.kind, Name: trivet.ShortName(name), Err: trivet.ErrNotFound}
	}
	return typed[T](e)
}

// List returns copies of all records, in order of full name.
func (t *Table[T]) List() []*T { return copies(t.AllShared()) }

// Len returns the number of records.
func (t *Table[T]) Len() int {
	n := 0
	for range t.readable() {
		n++
	}
	return n
}

// AllShared yields all shared records at one revision, in order of full name.
func (t *Table[T]) AllShared() iter.Seq[*T] {
	t.checkRead()
	return all[T](t.store.snapshot(), t.info)
}

// After yields the shared records after a full name, at most limit, in order of full name.
func (t *Table[T]) After(name string, limit int) iter.Seq[*T] {
	t.checkRead()
	return func(yield func(*T) bool) {
		prefix, n := recordKey(t.info.part, ""), 0
		for v := range entries[T](t.store.snapshot().under(prefix, prefix+name)) {
			if n++; n > limit || !yield(v) {
				return
			}
		}
	}
}

// Names returns the full names of all records, in order.
func (t *Table[T]) Names() (names []string) {
	for e := range t.readable() {
		names = append(names, e.name)
	}
	return names
}

// readable yields the entries of all records that can be decoded, which are not decoded for that.
func (t *Table[T]) readable() iter.Seq[*entry] {
	t.checkRead()
	return func(yield func(*entry) bool) {
		for e := range t.store.snapshot().under(recordKey(t.info.part, ""), "") {
			if e.err == nil && !yield(e) {
				return
			}
		}
	}
}

// ListBy returns copies of the records that have a key in an index, in order of full name.
func (t *Table[T]) ListBy(index, key string) []*T {
	t.checkRead()
	return copies(by[T](t.store.snapshot(), t.info, index, key))
}

// SharedBy returns the shared records that have a key in an index, in order of full name.
func (t *Table[T]) SharedBy(index, key string) []*T {
	t.checkRead()
	return slices.Collect(by[T](t.store.snapshot(), t.info, index, key))
}

func typed[T any](e *entry) (*T, error) {
	rec, err := e.typed()
	if err != nil {
		return nil, err
	}
	return any(rec).(*T), nil
}

func all[T any](s *snapshot, info *kindInfo) iter.Seq[*T] {
	return entries[T](s.under(recordKey(info.part, ""), ""))
}

func by[T any](s *snapshot, info *kindInfo, name, key string) iter.Seq[*T] {
	return entries[T](s.listed(info, info.index(name), key))
}

// entries yields the records that can be decoded.
func entries[T any](from iter.Seq[*entry]) iter.Seq[*T] {
	return func(yield func(*T) bool) {
		for e := range from {
			if v, ok := any(e.record()).(*T); ok && !yield(v) {
				return
			}
		}
	}
}

func copies[T any](from iter.Seq[*T]) []*T {
	var list []*T
	for v := range from {
		list = append(list, deepCopy(v))
	}
	return list
}
