package store

import (
	"context"
	"errors"
	"slices"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/trivet-project/trivet"
)

// Former records are read from this head's member, at the revision of the copy: see former.go.

// Find returns a record, which may be a former one, or ErrNotFound. It is shared and must not be modified.
func (t *Table[T]) Find(ctx context.Context, name string) (*T, error) {
	t.checkRead()
	raw, err := t.store.Find(ctx, t.info.kind, name)
	if err != nil {
		return nil, err
	}
	return typed[T](raw.e)
}

// Find is [Store.Get], also of a former record.
func (s *Store) Find(ctx context.Context, kind trivet.Kind, name string) (Raw, error) {
	raw, err := s.Get(kind, name)
	if !errors.Is(err, trivet.ErrNotFound) || !s.KeepsFormer(kind) {
		return raw, err
	}
	var found *entry
	_, failed := s.atCopy(ctx, func(ctx context.Context, revision int64) (err error) {
		found, err = s.formerAt(ctx, kindPart(kind), name, revision)
		return err
	})
	switch {
	case failed != nil:
		return Raw{}, failed
	case found == nil:
		return Raw{}, err
	case found.refused():
		return Raw{}, found.fail("get")
	}
	return Raw{found}, nil
}

// KeepsFormer reports whether a kind keeps former records. They are found by Find and ListAll.
func (s *Store) KeepsFormer(kind trivet.Kind) bool {
	info := s.kinds[kindPart(kind)]
	return info != nil && info.former != nil
}

// Cold reports whether the record was read from the store, as a former one or one of a cold kind: no one else holds it.
func (r Raw) Cold() bool { return isHistory(r.e.key) }

// CanRetire reports whether all heads know of former records, by this head's copy.
func (t *Table[T]) CanRetire() bool {
	site, _ := t.store.snapshot().get(recordKey("site", trivet.SiteName)).record().(*trivet.Site)
	reached := trivet.Release("")
	if site != nil {
		reached = site.Status.ClusterVersion
	}
	return t.info.former.since.Compare(reached) <= 0
}

// formerBytes bounds the former records that FormerAfter returns.
const formerBytes = 4 << 20

// FormerAfter returns former records after a full name, in that order, at most limit, and the name after which there
// may be more; empty: there are none.
func (t *Table[T]) FormerAfter(ctx context.Context, name string, limit int) (list []*T, next string, err error) {
	t.checkRead()
	_, err = t.store.atCopy(ctx, func(ctx context.Context, revision int64) error {
		raws, more, err := t.store.rangeFormer(ctx, t.info.part,
			formerRange{after: name, limit: limit, bytes: formerBytes}, revision)
		list, next = nil, ""
		for _, raw := range raws {
			if v, ok := any(raw.Record()).(*T); ok {
				list = append(list, v)
			}
		}
		if err == nil && more {
			next = raws[len(raws)-1].Name()
		}
		return err
	})
	return list, next, err
}

// HasFormer reports whether there is a former record of a name, without reading it.
func (t *Table[T]) HasFormer(ctx context.Context, name string) (has bool, err error) {
	t.checkRead()
	_, err = t.store.atCopy(ctx, func(ctx context.Context, revision int64) error {
		found, err := t.store.getAt(ctx, formerKey(t.info.part, name), revision, clientv3.WithKeysOnly())
		has = err == nil && len(found.Kvs) > 0
		return err
	})
	return has, err
}

func (s *Store) formerAt(ctx context.Context, part, name string, revision int64) (*entry, error) {
	page, err := s.coldPage(ctx, formerPage(part, name), revision)
	if err != nil {
		return nil, err
	}
	return page.entry(""), nil
}

// Query selects records of a kind that keeps former ones, in the order of full name.
type Query struct {
	Kind    trivet.Kind
	Project string // empty: all
	// Field returns the value that a field must have; empty: any. The records are those that an index finds for one of
	// these fields, and perhaps others.
	Field func(field string) string
	After string // a full name
	Limit int    // of records
	Bytes int    // of former records, after which the list is continued
}

// ListAll returns records of the copy and former ones as [Store.List] does. more: there may be further ones.
func (s *Store) ListAll(ctx context.Context, q Query) (records []Raw, more bool, revision int64, err error) {
	info := s.kinds[kindPart(q.Kind)]
	revision, err = s.atSnapshot(ctx, func(ctx context.Context, snap *snapshot) error {
		old, moreOld, err := s.listFormer(ctx, info, q, snap.rev)
		if err != nil {
			return err
		}
		hot := listHot(snap, info, q)
		records, more = mergeByName(hot, old, len(hot) == q.Limit, moreOld, q.Limit)
		return nil
	})
	return records, more, revision, err
}

// listHot returns the records of the copy that a query selects.
func listHot(snap *snapshot, info *kindInfo, q Query) []Raw {
	for _, ix := range info.indexes {
		if ix.field == "" || q.Field(ix.field) == "" {
			continue
		}
		if from, ok := snap.byField(info, ix, q.Project, q.Field(ix.field), q.After); ok {
			return page(from, q.Limit)
		}
	}
	return page(snap.under(keysOf(info.part, q.Project), recordKey(info.part, q.After)), q.Limit)
}

// listFormer returns the former records that a query selects.
func (s *Store) listFormer(ctx context.Context, info *kindInfo, q Query, revision int64) ([]Raw, bool, error) {
	if group := q.Field(info.index(info.former.index).field); group != "" {
		return s.formerGroup(ctx, info, group, q, revision)
	}
	r := formerRange{prefix: strings.TrimPrefix(keysOf(info.part, q.Project), recordKey(info.part, "")), after: q.After,
		limit: q.Limit, bytes: q.Bytes}
	if under := info.former.under(q.Project, q.Field); strings.HasPrefix(under, r.prefix) {
		r.prefix = under
	}
	return s.rangeFormer(ctx, info.part, r, revision)
}

// formerGroup returns the former records of one group: those whose names its list has.
func (s *Store) formerGroup(ctx context.Context, info *kindInfo, group string, q Query, revision int64) (list []Raw,
	more bool, err error) {
	key := info.keyOfGroup(group)
	found, err := s.getAt(ctx, key, revision)
	if err != nil || len(found.Kvs) == 0 {
		return nil, false, err
	}
	e := s.openEntry(key, "", "", found.Kvs[0])
	if s.refusals.log(e); e.err != nil {
		return nil, false, nil
	}
	names, used := namesIn(e.doc()), 0
	slices.SortFunc(names, func(a, b formerName) int { return strings.Compare(a.Name, b.Name) })
	for i := range names {
		name := names[i].Name
		if project, _ := trivet.SplitName(name); name <= q.After || q.Project != "" && project != q.Project {
			continue
		}
		e, err := s.formerAt(ctx, info.part, name, revision)
		if err != nil {
			return nil, false, err
		}
		if e == nil || e.refused() {
			continue
		}
		list, used = append(list, Raw{e}), used+e.size()
		if len(list) == q.Limit || used >= q.Bytes {
			return list, i+1 < len(names), nil
		}
	}
	return list, false, nil
}

// formerRange is a range of former records. limit and bytes bound what is read of it.
type formerRange struct {
	prefix, after string // of full names
	limit, bytes  int
}

// formerKeys is how many values one request reads: each may be large.
const formerKeys = 16

func (s *Store) rangeFormer(ctx context.Context, part string, r formerRange, revision int64) (list []Raw, more bool,
	err error) {
	from, used := formerPage(part, r.prefix), 0
	end := clientv3.GetPrefixRangeEnd(from)
	if r.after != "" {
		from = max(from, formerKey(part, r.after)+"\x00")
	}
	for {
		found, err := s.getAt(ctx, from, revision, clientv3.WithRange(end), clientv3.WithLimit(formerKeys))
		if err != nil {
			return nil, false, err
		}
		for i, kv := range found.Kvs {
			e := s.read(kv, nil)
			if e == nil || e.refused() {
				continue
			}
			list, used = append(list, Raw{e}), used+e.size()
			if len(list) == r.limit || used >= r.bytes {
				return list, found.More || i+1 < len(found.Kvs), nil
			}
		}
		if !found.More {
			return list, false, nil
		}
		from = string(found.Kvs[len(found.Kvs)-1].Key) + "\x00"
	}
}

// mergeByName merges the beginnings of two lists in the order of full name, up to where one of them is not known. more:
// there may be further records.
func mergeByName(a, b []Raw, moreA, moreB bool, limit int) (merged []Raw, more bool) {
	for len(merged) < limit {
		switch {
		case len(a) == 0 && moreA, len(b) == 0 && moreB:
			return merged, true
		case len(a) == 0 && len(b) == 0:
			return merged, false
		case len(b) == 0, len(a) > 0 && a[0].Name() < b[0].Name():
			merged, a = append(merged, a[0]), a[1:]
		default:
			merged, b = append(merged, b[0]), b[1:]
		}
	}
	return merged, len(a)+len(b) > 0 || moreA || moreB
}
