package store

import "github.com/trivet-project/trivet"

// Each reference that a deletion must find has an index. That of a reference which prevents a deletion is compared: a
// transaction that deletes a record reads the lists of those that refer to it, and one that adds a reference reads its
// target. So of the two, the one that is committed later runs again and finds the other.

func (info *kindInfo) addReferences() {
	info.refs = trivet.ReferencesFrom(info.kind)
	for _, r := range info.refs {
		if r.OnDelete == trivet.DeletionIgnored {
			continue
		}
		keys := func(rec trivet.Record) (names []string) {
			for _, t := range r.Targets(rec) {
				names = append(names, t.Name)
			}
			return names
		}
		info.indexes = append(info.indexes, index{name: r.Field, keys: keys,
			compared: r.OnDelete != trivet.DeletionCascades, to: r.To})
	}
}

// fillUIDs sets the UIDs of the targets that a record refers to, where they are empty and the target exists.
func (tx *Tx) fillUIDs(info *kindInfo, rec trivet.Record) {
	for _, r := range info.refs {
		for _, t := range r.Targets(rec) {
			if t.UID == nil || *t.UID != "" {
				continue
			}
			if found := tx.current(r.To, t.Name); found != nil {
				*t.UID = found.Header().UID
			}
		}
	}
}

// current returns the shared record of a name as the transaction sees it, or nil.
func (tx *Tx) current(kind trivet.Kind, name string) trivet.Record {
	key := tx.store.key(kind, name)
	e := tx.read(key)
	if w := tx.writes[key]; w != nil {
		return w.rec
	}
	return e.record()
}

// Referrer is a record that refers to another one.
type Referrer struct {
	trivet.Reference
	Record trivet.Record // shared: it must not be modified
}

// Referrers returns the records that refer to a record, without those that its deletion ignores. The commit compares
// that no other record refers to it by a reference that prevents its deletion.
func (tx *Tx) Referrers(r trivet.Record) (all []Referrer) {
	for _, ref := range trivet.ReferencesTo(r.Header().Kind) {
		info := tx.store.kinds[kindPart(ref.From)]
		if ref.OnDelete == trivet.DeletionIgnored || info == nil {
			continue
		}
		for _, rec := range tx.list(info, info.index(ref.Field), r.Header().FullName()) {
			for _, t := range ref.Targets(rec) {
				if t.Is(r.Header()) {
					all = append(all, Referrer{ref, rec})
					break
				}
			}
		}
	}
	return all
}
