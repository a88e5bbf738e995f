package store

import (
	"context"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/trivet-project/trivet/internal/keyring"
)

// A value that is encrypted with a key which is not the active one is resealed: encrypted again, with the active one.
// That is no change of its record. It keeps the revision of its last change, which readers see and conditional writes
// compare, and the ID of the transaction that made the change; watchers get no event.
//
// A pass over all values needs no fixed revision. Each value is either read under the active key, or resealed, or
// written by a transaction meanwhile, and those use the active key. So a pass that finds nothing proves that at its
// last revision, and from then on, no value is under another key.

// ResealPage is the result of one step of a pass.
type ResealPage struct {
	Next     string // where the next step begins; empty: the pass is complete
	Revision int64  // of the store when the page was read
	Read     int    // values
	// Found is how many were under another key and authenticate, Written how many of these were resealed: the others
	// were changed meanwhile. Bytes is the size of the new values.
	Found, Written, Bytes int
}

// resealPage is how many values one step reads, and writes in one transaction at most.
const resealPage = 100

// resealItem is one value that is resealed.
type resealItem struct {
	same clientv3.Cmp
	put  clientv3.Op
	size int
}

// Reseal takes one step of a pass: it reads the values from a key on and reseals those that need it. It begins with an
// empty key. Values that do not authenticate are left.
func (s *Store) Reseal(ctx context.Context, from string) (p ResealPage, err error) {
	with, err := s.Active()
	if err != nil {
		return p, err
	}
	read, cancel := s.bounded(ctx)
	defer cancel()
	page, err := s.client.Get(read, max(from, coldPrefix), clientv3.WithSerializable(), clientv3.WithLimit(resealPage),
		clientv3.WithRange(clientv3.GetPrefixRangeEnd(prefix))) // both prefixes: coldPrefix is before prefix
	if err != nil {
		return p, noQuorum("reseal", err)
	}
	p.Revision = page.Header.Revision
	items, end, err := s.resealItems(with, page.Kvs)
	if err != nil {
		return p, err
	}
	if p.Read, p.Found = end, len(items); end < len(page.Kvs) || page.More {
		p.Next = string(page.Kvs[end-1].Key) + "\x00"
	}
	for _, item := range items {
		p.Bytes += item.size
	}
	p.Written, err = s.writeResealed(read, with, items, p.Bytes)
	s.metrics.reseals.Add(float64(p.Written))
	return p, err
}

// resealItems returns what is written in one transaction, and how many of the values it covers.
func (s *Store) resealItems(with keyring.ID, kvs []*mvccpb.KeyValue) (items []resealItem, end int, err error) {
	size := 0
	for i, kv := range kvs {
		if id, ok := keyring.IDOf(kv.Value); !ok || id == with {
			continue
		}
		key := string(kv.Key)
		v, err := s.open(key, kv)
		if err != nil {
			continue
		}
		sealed, err := s.sealAgain(with, key, v, kv)
		if err != nil {
			return nil, 0, err
		}
		if size += len(key) + len(sealed); size > MaxBytes && len(items) > 0 {
			return items, i, nil
		}
		items = append(items, resealItem{clientv3.Compare(clientv3.ModRevision(key), "=", kv.ModRevision),
			clientv3.OpPut(key, sealed), len(key) + len(sealed)})
	}
	return items, len(kvs), nil
}

// sealAgain returns the value that replaces one.
func (s *Store) sealAgain(with keyring.ID, key string, v value, kv *mvccpb.KeyValue) (string, error) {
	if v.changed == 0 {
		v.changed = kv.ModRevision
	}
	text, _ := v.text()
	return s.encrypt(with, text, s.place(key, kv.CreateRevision, kv.Version+1))
}

// writeResealed writes values in one transaction, or one by one where some were changed since they were read. It
// returns how many it has written, and returns when the copy has them.
func (s *Store) writeResealed(ctx context.Context, with keyring.ID, items []resealItem, size int) (int, error) {
	active, same, err := s.activeIn(s.snapshot()) // its own value may be among those that were written
	if err != nil || active != with || len(items) == 0 {
		return 0, err
	}
	if err := s.opts.Admit(1, int64(size)); err != nil { // the history has the old values too, for a while
		return 0, err
	}
	ifs, thens := []clientv3.Cmp{same}, []clientv3.Op{}
	for _, item := range items {
		ifs, thens = append(ifs, item.same), append(thens, item.put)
	}
	var resp *clientv3.TxnResponse
	err = s.attempt(ctx, func(ctx context.Context) (err error) {
		resp, err = s.client.Txn(ctx).If(ifs...).Then(thens...).Commit()
		return err
	})
	switch {
	case err != nil: // what was written all the same is found to be resealed
		return 0, noQuorum("reseal", err)
	case resp.Succeeded:
		return len(items), s.pending.wait(ctx, resp.Header.Revision)
	case len(items) == 1:
		return 0, nil
	}
	written := 0
	for i := range items {
		n, err := s.writeResealed(ctx, with, items[i:i+1], items[i].size)
		if written += n; err != nil {
			return written, err
		}
	}
	return written, nil
}
