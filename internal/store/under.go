package store

import "iter"

// Position is the place of a record in an index: after it a scan continues. The zero Position is before all records.
type Position struct{ Key, Name string }

// Under yields the shared records that have a key with this prefix in an index, and are after a place, in order of the
// key and then of the name. It reads no more records than its caller takes. A record with several such keys is yielded
// for each.
func (t *Table[T]) Under(index, prefix string, after Position) iter.Seq[*T] {
	t.checkRead()
	name, from := t.info.index(index).name, ""
	if after != (Position{}) {
		from = listPath(t.info.part, name, after.Key) + recordKey(t.info.part, after.Name)
	}
	all := listPath(t.info.part, name, prefix)
	return entries[T](t.store.snapshot().indexed(all[:len(all)-1], from))
}
