package store

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/trivet-project/trivet"
)

// A kind may keep former records: those that are history, as runs that have ended and are not the last of their
// machine, while the others are in each head's copy. [View.Retire] makes a record a former one. It keeps its name, UID,
// spec, status and revision, so that nothing changes for readers, and watchers are not notified.
//
// The key of a former record is /trivet-history/<kind>/<name>!, that of a page of a cold kind (see coldkind.go) with
// one slot, which has no name. As "!" sorts before what names have, the keys are in the order of the names. So a list
// of both is merged, and has a record once that is moved between two of its pages.
//
// The former records of one group, as those of a machine, are listed in a key of their own,
// /trivet-history/-former/<kind>/<group>, the newest first. So they are found without an index in memory. A transaction
// that moves or deletes one reads and writes the list. It holds so many names at most, and beyond them the records are
// deleted that were created first.

// former is what a kind keeps of former records.
type former struct {
	index string         // the group of a record is its key in this one
	most  int            // of one group
	since trivet.Release // since which all heads know of them
	// under returns what the full names of records begin with that have some values of fields; empty if that is not
	// known.
	under func(project string, value func(field string) string) string
}

// KeepFormer declares that the table keeps former records, at most so many for each key of an index. under returns what
// the full names of records of a project begin with that have some values of fields, as "spec.provision"; empty if that
// is not known. It returns the table, and is called before the store is started.
func (t *Table[T]) KeepFormer(index string, most int,
	under func(project string, value func(field string) string) string) *Table[T] {
	t.info.former = &former{index: t.info.index(index).name, most: most, under: under}
	return t
}

// formerKey returns the key of a former record.
func formerKey(part, name string) string { return formerPage(part, name) + slotMark }

// formerPage returns the page of a former record, which has no key of its own.
func formerPage(part, name string) string { return historyPrefix + part + "/" + name }

// isFormer reports whether a key is that of a former record.
func isFormer(key string) bool { return isHistory(key) && strings.HasSuffix(key, slotMark) }

// isGroup reports whether a key is that of a group of former records.
func isGroup(key string) bool { return strings.HasPrefix(key, historyPrefix+formerPart) }

// formerDoc is the value of the key of a group.
type formerDoc struct {
	Kind  string       `json:"kind"`
	Names []formerName `json:"names"` // the newest first
}

// formerName is one record of a group.
type formerName struct {
	Name    string `json:"name"`    // the full name
	Created int64  `json:"created"` // the revision at which it was, before it was a former one
}

// moves are the keys of records that became former ones, with the revisions at which they did. Their deletions are no
// changes of records.
type moves map[string]int64

// movedIn returns the moves among changes of etcd's keys, which are of whole revisions. A former record that does not
// authenticate hides no deletion.
func (s *Store) movedIn(events []*clientv3.Event) (moved moves) {
	for _, ev := range events {
		key := string(ev.Kv.Key)
		if ev.Type == clientv3.EventTypeDelete || !isFormer(key) {
			continue
		}
		part, name, _ := splitKey(key)
		e := s.openEntry(key, part, name, ev.Kv)
		if s.refusals.log(e); e.err != nil {
			continue
		}
		if moved == nil {
			moved = moves{}
		}
		moved[recordKey(part, name)] = ev.Kv.ModRevision
	}
	return moved
}

// has reports whether a change is the deletion of a key whose record was moved.
func (m moves) has(ev *clientv3.Event) bool {
	return ev.Type == clientv3.EventTypeDelete && m[string(ev.Kv.Key)] == ev.Kv.ModRevision
}

// groupKey returns the key of the group that a record belongs to; empty: it belongs to none.
func (info *kindInfo) groupKey(rec trivet.Record) string {
	keys := info.index(info.former.index).keys(rec)
	if len(keys) == 0 || keys[0] == "" {
		return ""
	}
	return info.keyOfGroup(keys[0])
}

func (info *kindInfo) keyOfGroup(group string) string {
	return historyPrefix + formerPart + info.part + "/" + group
}

// namesIn returns the names in the value of a group's key. History that cannot be read prevents nothing.
func namesIn(doc []byte) []formerName {
	var list formerDoc
	if json.Unmarshal(doc, &list) != nil {
		return nil
	}
	return list.Names
}

// Retire makes a record that the transaction does not write otherwise a former one, and deletes the oldest ones of its
// group that are too many. Errors: ErrNotFound; ErrConflict before all heads have the release.
func (t View[T]) Retire(name string) error {
	if err := t.tx.retire(t.info, name); err != nil {
		return t.tx.fail("retire", t.info, name, err)
	}
	return nil
}

func (tx *Tx) retire(info *kindInfo, name string) error {
	if err := tx.checkWrite(info); err != nil {
		return err
	}
	if since, reached := info.former.since, tx.ClusterVersion(); since.Compare(reached) > 0 {
		return errRelease("former records of kind "+string(info.kind), since, reached)
	}
	key := info.key(name)
	e := tx.read(key)
	switch {
	case e == nil || tx.writes[key] != nil:
		return trivet.ErrNotFound
	case e.err != nil:
		return e.err
	}
	tx.write(formerKey(info.part, name), &write{doc: e.full(), changed: e.rev})
	tx.write(key, &write{})
	return tx.changeGroup(info, e.record(), name, &formerName{name, e.created})
}

// Former returns a copy of a former record, or ErrNotFound. The commit compares it.
func (t View[T]) Former(name string) (*T, error) {
	if err := t.tx.checkRead(t.info); err != nil {
		return nil, t.tx.fail("get", t.info, name, err)
	}
	key := formerKey(t.info.part, name)
	e := t.tx.read(key)
	if e == nil || t.tx.writes[key] != nil {
		return nil, t.tx.fail("get", t.info, name, trivet.ErrNotFound)
	}
	v, err := typed[T](e)
	return deepCopy(v), err
}

// DropFormer deletes a former record, or returns ErrNotFound.
func (t View[T]) DropFormer(name string) error {
	if err := t.tx.dropFormer(t.info, name); err != nil {
		return t.tx.fail("delete", t.info, name, err)
	}
	return nil
}

func (tx *Tx) dropFormer(info *kindInfo, name string) error {
	if err := tx.checkWrite(info); err != nil {
		return err
	}
	key := formerKey(info.part, name)
	e := tx.read(key)
	if e == nil || tx.writes[key] != nil {
		return trivet.ErrNotFound
	}
	tx.write(key, &write{})
	rec := e.record()
	if rec == nil { // its group is not known: the name in its list leads to nothing
		return nil
	}
	return tx.changeGroup(info, rec, name, nil)
}

// changeGroup removes a name from the list of a record's group, and adds one; nil: none. The oldest records whose names
// do not fit are deleted; that may be the one that is added.
func (tx *Tx) changeGroup(info *kindInfo, rec trivet.Record, remove string, add *formerName) error {
	key := info.groupKey(rec)
	if key == "" {
		return nil
	}
	list := slices.DeleteFunc(tx.namesIn(key), func(n formerName) bool { return n.Name == remove })
	if add != nil {
		list = append(list, *add)
	}
	slices.SortStableFunc(list, func(a, b formerName) int { return cmp.Compare(b.Created, a.Created) })
	keep := min(len(list), info.former.most)
	for _, n := range list[keep:] {
		tx.write(formerKey(info.part, n.Name), &write{})
	}
	if keep == 0 {
		tx.write(key, &write{})
		return nil
	}
	doc, err := json.Marshal(formerDoc{"former", list[:keep]})
	if err != nil {
		return fmt.Errorf("list of former records: %w", err)
	}
	tx.write(key, &write{doc: doc})
	return nil
}

// namesIn returns the list of a group as the transaction sees it, which the commit compares.
func (tx *Tx) namesIn(key string) []formerName {
	e := tx.read(key)
	if w := tx.writes[key]; w != nil {
		return namesIn(w.doc)
	}
	if e == nil || e.err != nil {
		return nil
	}
	return namesIn(e.doc())
}
