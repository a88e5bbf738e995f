package store

import (
	"context"
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/trivet-project/trivet"
)

// A document is a plain value that one owner rewrites as a whole, such as what a head has counted. It is no record: the
// feed skips its key, so that no head has it in its copy and no watcher is notified.

// documentPrefix is outside of prefix. The key of a document is /trivet-document/<name>/<owner>.
const documentPrefix = "/trivet-document/"

// Document is a document as it was read. The zero value is one that does not exist.
type Document struct {
	Owner string
	Value []byte
	Err   error // ErrRefused: it was forged, replayed or damaged. It may be replaced.

	revision, created, version int64
}

func documentKey(name, owner string) string { return documentPrefix + name + "/" + owner }

// Documents returns the documents of a name, by owner. It needs a quorum.
func (s *Store) Documents(ctx context.Context, name string) (map[string]Document, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	var page *clientv3.GetResponse
	err := s.attempt(ctx, func(ctx context.Context) (err error) {
		page, err = s.client.Get(ctx, documentKey(name, ""), clientv3.WithPrefix())
		return err
	})
	if err != nil {
		return nil, noQuorum("read "+name, err)
	}
	documents := map[string]Document{}
	for _, kv := range page.Kvs {
		d := s.readDocument(name, kv)
		documents[d.Owner] = d
	}
	return documents, nil
}

func (s *Store) readDocument(name string, kv *mvccpb.KeyValue) Document {
	v, err := s.open(string(kv.Key), kv)
	return Document{Owner: strings.TrimPrefix(string(kv.Key), documentKey(name, "")), Value: v.doc, Err: err,
		revision: kv.ModRevision, created: kv.CreateRevision, version: kv.Version}
}

// PutDocument replaces a document, or creates it where was is the zero value. It fails with ErrConflict where that is
// not what is stored: something else was written by another process, or by a call that failed. So it does where the
// active key was replaced meanwhile. In the same transaction it deletes other documents of the name, which must be as
// they were read, too.
func (s *Store) PutDocument(ctx context.Context, name, owner string, was Document, doc []byte,
	deleted ...Document) error {
	key := documentKey(name, owner)
	if len(key)+len(doc) > MaxBytes {
		return tooLarge("a document of %d bytes; the maximum is %d", len(doc), MaxBytes)
	}
	if err := s.opts.Admit(0, int64(len(doc)-len(was.Value))); err != nil {
		return err
	}
	var old *entry
	if was.revision != 0 {
		old = &entry{created: was.created, version: was.version}
	}
	with, same, err := s.activeIn(s.snapshot())
	if err != nil {
		return err
	}
	sealed, err := s.seal(with, key, old, &value{doc: doc})
	if err != nil {
		return err
	}
	ops, ifs := []clientv3.Op{clientv3.OpPut(key, sealed)}, []clientv3.Cmp{same}
	for _, d := range deleted {
		other := documentKey(name, d.Owner)
		ops = append(ops, clientv3.OpDelete(other))
		ifs = append(ifs, clientv3.Compare(clientv3.ModRevision(other), "=", d.revision))
	}
	return s.writeDocument(ctx, key, was, ops, ifs...)
}

// DeleteDocument deletes a document. It fails with ErrConflict where it was written since.
func (s *Store) DeleteDocument(ctx context.Context, name string, was Document) error {
	key := documentKey(name, was.Owner)
	return s.writeDocument(ctx, key, was, []clientv3.Op{clientv3.OpDelete(key)})
}

// writeDocument writes a document if it is what was read, and what else is compared holds.
func (s *Store) writeDocument(ctx context.Context, key string, was Document, ops []clientv3.Op,
	ifs ...clientv3.Cmp) error {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	ifs = append(ifs, clientv3.Compare(clientv3.ModRevision(key), "=", was.revision))
	var resp *clientv3.TxnResponse
	err := s.attempt(ctx, func(ctx context.Context) (err error) {
		resp, err = s.client.Txn(ctx).If(ifs...).Then(ops...).Commit()
		return err
	})
	if err != nil { // it may have been written: the next read shows it
		return &trivet.Error{Op: "write document", Name: key, Err: fmt.Errorf("%w: %w", trivet.ErrUnknown, err)}
	}
	if !resp.Succeeded {
		return &trivet.Error{Op: "write document", Name: key,
			Err: fmt.Errorf("%w: it was written since it was read", trivet.ErrConflict)}
	}
	return nil
}
