package store

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// entry returns the entry of a key at the transaction's revision, or nil. Of cold kinds it is read from this head's
// member; if that fails, the transaction does.
func (tx *Tx) entry(key string) *entry {
	if !isHistory(key) {
		return tx.snap.get(key)
	}
	if page, slot, ok := cutSlot(key); ok {
		return tx.page(page).entry(slot)
	}
	return tx.page(key).wholeEntry()
}

// page returns the page of a cold kind with a key.
func (tx *Tx) page(key string) *coldPage {
	if p := tx.pages[key]; p != nil {
		return p
	}
	p, err := tx.store.coldPage(tx.ctx, key, tx.snap.rev)
	if err != nil {
		tx.coldErr = cmp.Or(tx.coldErr, err)
		return &coldPage{store: tx.store, key: key, entries: map[string]*entry{}}
	}
	tx.pages[key] = p
	return p
}

// unread returns the error of a transaction that could not read a cold record.
func (tx *Tx) unread() error {
	switch {
	case errors.Is(tx.coldErr, rpctypes.ErrCompacted): // the copy is newer soon
		return errRerun
	case tx.coldErr != nil:
		return noQuorum("update", tx.coldErr)
	}
	return nil
}

// modAt returns a key's ModRevision in a snapshot, or 0 if the key is absent there.
func (s *Store) modAt(ctx context.Context, snap *snapshot, key string) (int64, error) {
	if !isHistory(key) {
		return snap.revOf(key), nil
	}
	found, err := s.getAt(ctx, key, snap.rev, clientv3.WithKeysOnly())
	switch {
	case errors.Is(err, rpctypes.ErrCompacted):
		return 0, errRerun
	case err != nil:
		return 0, noQuorum("update", err)
	case len(found.Kvs) == 0:
		return 0, nil
	}
	return found.Kvs[0].ModRevision, nil
}

// packPages writes each page of which the transaction writes a slot that fills a half, or several ones, as one key.
func (tx *Tx) packPages() error {
	written, packed := map[string]int{}, map[string]bool{}
	for _, key := range slices.Clone(tx.order) {
		page, slot, ok := cutSlot(key)
		if !ok || slot == "" || tx.writes[key] == nil || tx.writes[key].doc == nil { // former records have no slot
			continue
		}
		if written[page]++; packed[page] || slot != halfSlot && slot != lastSlot && written[page] < 2 {
			continue
		}
		packed[page] = true
		if err := tx.pack(page); err != nil {
			return err
		}
	}
	return nil
}

// packedEntry returns the record of a slot that the transaction does not write. One that has no key of its own is in
// the page's, which is compared; a key that it gets meanwhile takes precedence over the page.
func (tx *Tx) packedEntry(p *coldPage, key, slot string) *entry {
	if p.single[slot] != nil {
		return tx.read(key)
	}
	return p.inWhole()[slot]
}

// pack replaces the keys of a page's records by one of the page, in the place of the first of them in the transaction.
func (tx *Tx) pack(page string) error {
	p, doc := tx.page(page), pageDoc{Kind: "page"}
	tx.read(page)
	all := map[string]bool{}
	for _, slot := range p.slots() {
		all[slot] = true
	}
	first := -1
	for i, key := range tx.order {
		if slot, own := strings.CutPrefix(key, page+slotMark); own {
			all[slot] = true
			if first < 0 {
				first = i
			}
		}
	}
	var replaced []string
	for _, slot := range slices.Sorted(maps.Keys(all)) {
		key := page + slotMark + slot
		if w := tx.writes[key]; w != nil {
			doc.Records = append(doc.Records, pageRecord{Slot: slot, Doc: w.doc})
		} else if e := tx.packedEntry(p, key, slot); e != nil && !e.refused() {
			doc.Records = append(doc.Records, pageRecord{Slot: slot, Revision: e.rev, Doc: e.doc()})
		}
		delete(tx.writes, key)
		if p.single[slot] != nil {
			replaced = append(replaced, key)
		}
	}
	text, err := json.Marshal(doc)
	if err != nil {
		return err
	}
	tx.order[first] = page
	tx.writes[page] = &write{doc: text}
	tx.order = slices.DeleteFunc(tx.order, func(key string) bool { return tx.writes[key] == nil })
	for _, key := range replaced {
		tx.write(key, &write{})
	}
	return nil
}
