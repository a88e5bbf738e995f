package store

import (
	"context"
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/trivet-project/trivet"
)

// Checked is what Check found under one key of the store.
type Checked struct {
	Key string
	// Record is the typed record, which must not be modified; nil where the value is internal to the store, is of a
	// stream or a document, or cannot be read.
	Record trivet.Record
	Err    error // why the value cannot be used
}

// compactedKey is what a member writes after a compaction. Nothing reads its value.
const compactedKey = "trivet-compacted"

// checkPage is how many values one request of Check reads.
const checkPage = 100

// Check reads every value of this head's member, as it is at the revision of the copy, and calls do with each of its
// records, also those of cold kinds: each must authenticate and be one that can be decoded. It is for a store that
// nothing else writes, such as a restored one.
func (s *Store) Check(ctx context.Context, do func(Checked)) error {
	snap := s.snapshot()
	for e := range snap.under(prefix, "") {
		c := Checked{Key: e.key, Err: e.err, Record: e.record()}
		if isInternal(e.kind) {
			c.Record = nil // the spec of a record is checked with it
		} else if c.Err == nil && e.info == nil {
			c.Err = fmt.Errorf("%w: this version does not know records of kind %s", trivet.ErrInvalid, e.kind)
		}
		do(c)
	}
	return s.checkOthers(ctx, snap.rev, do)
}

// checkOthers checks what is in the store and not in the copy.
func (s *Store) checkOthers(ctx context.Context, revision int64, do func(Checked)) error {
	from := "\x00"
	for {
		page, err := s.client.Get(ctx, from, clientv3.WithFromKey(), clientv3.WithLimit(checkPage),
			clientv3.WithRev(revision), clientv3.WithSerializable())
		if err != nil {
			return &trivet.Error{Op: "check the store", Err: unavailable(err)}
		}
		for _, kv := range page.Kvs {
			s.checkOther(kv, do)
		}
		if !page.More {
			return nil
		}
		from = string(page.Kvs[len(page.Kvs)-1].Key) + "\x00"
		if strings.HasPrefix(from, prefix) { // they are in the copy
			from = clientv3.GetPrefixRangeEnd(prefix)
		}
	}
}

func (s *Store) checkOther(kv *mvccpb.KeyValue, do func(Checked)) {
	key := string(kv.Key)
	switch {
	case strings.HasPrefix(key, prefix), key == compactedKey:
	case isHistory(key) && !isGroup(key):
		s.checkHistory(kv, do)
	case isGroup(key), strings.HasPrefix(key, coldPrefix), strings.HasPrefix(key, documentPrefix):
		_, err := s.open(key, kv)
		do(Checked{Key: key, Err: err})
	default:
		do(Checked{Key: key, Err: fmt.Errorf("%w: this version does not know what it is", trivet.ErrInvalid)})
	}
}

// checkHistory checks a record of a cold kind, or a page of them.
func (s *Store) checkHistory(kv *mvccpb.KeyValue, do func(Checked)) {
	if _, _, single := cutSlot(string(kv.Key)); single {
		e := s.read(kv, nil)
		do(Checked{Key: e.key, Record: e.record(), Err: e.err})
		return
	}
	page, records := s.readPage(kv)
	switch {
	case page.err != nil:
		do(Checked{Key: page.key, Err: page.err})
		return
	case len(records) == 0:
		do(Checked{Key: page.key, Err: fmt.Errorf("%w: a page without records", trivet.ErrInvalid)})
		return
	}
	for _, e := range records {
		e.decodeOnce()
		do(Checked{Key: e.key, Record: e.record(), Err: e.err})
	}
}
