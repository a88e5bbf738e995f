package store

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/trivet-project/trivet"
)

// ColdTable is the records of a cold kind. Each read is one of this head's member, which needs no quorum. Names are
// full names. Records are in the order of their pages, and of their slots.
type ColdTable[T any] struct {
	store *Store
	info  *kindInfo
	scope *Scope // of reads; nil: not limited
}

// NewColdTable adds the table of a cold kind to a store. under returns what the names of records begin with that have
// some values of fields, as "spec.subject"; empty if that is not known. All tables are added before the store is
// started.
func NewColdTable[T any, P interface {
	*T
	trivet.Record
}](s *Store, under func(value func(field string) string) string) *ColdTable[T] {
	info := newKind[T, P]()
	info.under = under
	s.addKind(info)
	return &ColdTable[T]{store: s, info: info}
}

// Within returns the table for reads within a scope: see [Table.Within].
func (t *ColdTable[T]) Within(s *Scope) *ColdTable[T] {
	return &ColdTable[T]{store: t.store, info: t.info, scope: s}
}

// In returns the table as seen by a transaction. There, records are read at the transaction's revision, and compared as
// others are.
func (t *ColdTable[T]) In(tx *Tx) ColdView[T] { return ColdView[T]{View[T]{tx, t.info}} }

// Get returns a record, or ErrNotFound.
func (t *ColdTable[T]) Get(ctx context.Context, name string) (*T, error) {
	t.checkRead()
	raw, err := t.store.GetCold(ctx, t.info.kind, name)
	if err != nil {
		return nil, err
	}
	return typed[T](raw.e)
}

// Under returns the records whose names begin with a prefix, after a name, at most limit (0: all).
func (t *ColdTable[T]) Under(ctx context.Context, prefix, after string, limit int) (list []*T, err error) {
	t.checkRead()
	raws, _, err := t.store.ListCold(ctx, t.info.kind, prefix, after, limit)
	for _, raw := range raws {
		if v, ok := any(raw.Record()).(*T); ok {
			list = append(list, v)
		}
	}
	return list, err
}

// Next returns a record of the first key after those of all records whose names begin with a prefix (empty: of the
// first key), or nil if there is none. It may be one that was written over since.
func (t *ColdTable[T]) Next(ctx context.Context, beyond string) (next *T, err error) {
	t.checkRead()
	all := historyPrefix + t.info.part + "/"
	from := all
	if beyond != "" {
		from = clientv3.GetPrefixRangeEnd(all + beyond)
	}
	for next == nil && err == nil && from != "" {
		next, from, err = t.first(ctx, from, clientv3.GetPrefixRangeEnd(all))
	}
	return next, err
}

// first returns the first record of a range, or from where to go on if none can be read there; empty: nowhere.
func (t *ColdTable[T]) first(ctx context.Context, from, end string) (first *T, next string, err error) {
	_, err = t.store.atCopy(ctx, func(ctx context.Context, revision int64) error {
		found, err := t.store.getAt(ctx, from, revision, clientv3.WithRange(end), clientv3.WithLimit(1))
		if err != nil || len(found.Kvs) == 0 {
			return err
		}
		next = string(found.Kvs[0].Key) + "\x00"
		page := t.store.coldPages(found.Kvs)[0]
		for _, slot := range page.slots() {
			if v, ok := any(page.entry(slot).record()).(*T); ok {
				first = v
			}
		}
		return nil
	})
	return first, next, err
}

func (t *ColdTable[T]) checkRead() {
	if err := t.scope.mayRead(t.info.kind); err != nil {
		panic(err)
	}
}

// ColdView is a table of a cold kind within a transaction.
type ColdView[T any] struct{ view View[T] }

// Get returns a copy of a record, or ErrNotFound: see [View.Get].
func (t ColdView[T]) Get(name string) (*T, error) { return t.view.Get(name) }

// Put creates or replaces a record: see [View.Put]. One that was refused is replaced, too.
func (t ColdView[T]) Put(v *T) error { return t.view.Put(v) }

// Drop deletes all records whose names begin with a prefix, which the transaction must not write otherwise. They are
// not read, nor compared.
func (t ColdView[T]) Drop(prefix string) error {
	tx, info := t.view.tx, t.view.info
	if err := tx.checkWrite(info); err != nil {
		return tx.fail("drop", info, prefix, err)
	}
	if prefix == "" {
		return tx.fail("drop", info, prefix, trivet.ErrInvalid)
	}
	from := historyPrefix + info.part + "/" + prefix
	tx.write(from, &write{end: clientv3.GetPrefixRangeEnd(from)})
	return nil
}

// IsCold reports whether a kind is cold. Its records are read by GetCold and ListCold.
func (s *Store) IsCold(kind trivet.Kind) bool {
	info := s.kinds[kindPart(kind)]
	return info != nil && info.cold()
}

// GetCold is [Store.Get] of a cold kind.
func (s *Store) GetCold(ctx context.Context, kind trivet.Kind, name string) (raw Raw, err error) {
	key, at := historyKey(kindPart(kind), name)
	_, err = s.atCopy(ctx, func(ctx context.Context, revision int64) error {
		page, err := s.coldPage(ctx, at, revision)
		if err == nil {
			_, slot, _ := cutSlot(key)
			raw.e = page.entry(slot)
		}
		return err
	})
	switch {
	case err != nil:
		return Raw{}, err
	case raw.e == nil:
		return Raw{}, &trivet.Error{Op: "get", Kind: kind, Name: trivet.ShortName(name), Err: trivet.ErrNotFound}
	case raw.e.refused():
		return Raw{}, raw.e.fail("get")
	}
	return raw, nil
}

// ListCold returns the records of a cold kind whose names begin with a prefix, after a name, at most limit (0: all),
// all of one revision, from which a watch can begin. Those that were refused are missing.
func (s *Store) ListCold(ctx context.Context, kind trivet.Kind, prefix, after string, limit int) (records []Raw,
	revision int64, err error) {
	revision, err = s.atCopy(ctx, func(ctx context.Context, revision int64) error {
		records, err = s.rangeCold(ctx, historyPrefix+kindPart(kind)+"/"+prefix, kindPart(kind), after, limit, revision)
		return err
	})
	return records, revision, err
}

// UnderFields returns a prefix for [Store.ListCold] that the records have whose fields have some values. It may be
// empty.
func (s *Store) UnderFields(kind trivet.Kind, value func(field string) string) string {
	return s.kinds[kindPart(kind)].under(value)
}

// coldKeys is how many keys one request of a list reads: more than a page has.
const coldKeys = 64

func (s *Store) rangeCold(ctx context.Context, all, part, after string, limit int, revision int64) (records []Raw,
	err error) {
	last, lastPage := historyKey(part, after)
	from := all
	if after != "" {
		from = max(all, lastPage)
	}
	for more := true; more; {
		found, err := s.getAt(ctx, from, revision, clientv3.WithRange(clientv3.GetPrefixRangeEnd(all)),
			clientv3.WithLimit(coldKeys))
		if err != nil {
			return nil, err
		}
		pages := s.coldPages(found.Kvs)
		if more = found.More; more { // the last one may be incomplete
			from = pages[len(pages)-1].key
			pages = pages[:len(pages)-1]
		}
		for _, page := range pages {
			for _, slot := range page.slots() {
				e := page.entry(slot)
				if e == nil || e.refused() || page.key == lastPage && e.key <= last {
					continue
				}
				if records = append(records, Raw{e}); len(records) == limit {
					return records, nil
				}
			}
		}
	}
	return records, nil
}
