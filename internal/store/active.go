package store

import (
	"encoding/json"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/keyring"
)

// One key of the store names the key that values are written with, the active one. Every transaction compares it, so
// none is committed under another key once that was replaced, however late its head sees that. A head that does
// not have the active key writes nothing. Where no key is named, the first one of the heads' rings is active: it was
// never replaced.

// activeDoc is the value of activeKey.
type activeDoc struct {
	Kind string `json:"kind"`
	ID   string `json:"id"`
}

// SetActive makes the values that are written after this transaction be encrypted with another key.
func (tx *Tx) SetActive(id keyring.ID) error {
	if !tx.store.opts.Cipher.Has(id) {
		return errLacksKey(id)
	}
	doc, err := json.Marshal(activeDoc{Kind: "key", ID: id.String()})
	if err == nil {
		tx.read(activeKey)
		tx.write(activeKey, &write{doc: doc})
	}
	return err
}

// Active returns the key that this head's copy names as the active one. Error: ErrUnavailable where this head does not
// have it.
func (s *Store) Active() (keyring.ID, error) {
	id, _, err := s.activeIn(s.snapshot())
	return id, err
}

// activeIn returns the active key of a snapshot, and the compare that it still is.
func (s *Store) activeIn(snap *snapshot) (id keyring.ID, same clientv3.Cmp, err error) {
	e := snap.get(activeKey)
	same = clientv3.Compare(clientv3.ModRevision(activeKey), "=", snap.revOf(activeKey))
	if e == nil {
		return s.opts.Cipher.First(), same, nil
	}
	if e.refused() {
		return e.sealed, same, errLacksKey(e.sealed)
	}
	var doc activeDoc
	if err = json.Unmarshal(e.doc(), &doc); err == nil {
		id, err = keyring.ParseID(doc.ID)
	}
	if err == nil && !s.opts.Cipher.Has(id) {
		err = errLacksKey(id)
	}
	return id, same, err
}

// errLacksKey is the error of a write by a head that does not have the active key.
func errLacksKey(id keyring.ID) error {
	return &trivet.Error{Op: "write",
		Err:  fmt.Errorf("%w: this head does not have the active key of the store, %s", trivet.ErrUnavailable, id),
		Hint: "it gets the key from another full head when it starts: see that one is up, and start this head again"}
}
