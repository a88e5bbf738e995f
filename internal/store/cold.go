package store

import (
	"context"
	"crypto/rand"
	"fmt"
	"math"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/trivet-project/trivet"
)

// Cold data is history: no decision rests on it. It is in the store, and not in the heads' copies: the feed skips its
// keys, and it is read by range from this head's member. It consists of streams of entries, which are written once, in
// the transaction of what they record. Their order is that of time, by the clocks of the heads that wrote them.

// coldPrefix is outside of prefix. The key of an entry is /trivet-cold/<stream>/<id>.
const coldPrefix = "/trivet-cold/"

// ColdEntry is one entry of a stream.
type ColdEntry struct {
	ID  string // its place: newer entries have lesser IDs
	Doc []byte // JSON
	Err error  // ErrRefused: it was forged, replayed or damaged

	resealed bool
}

func coldKey(stream, id string) string { return coldPrefix + stream + "/" + id }

// coldID returns the beginning of the ID of an entry.
func coldID(t time.Time) string { return fmt.Sprintf("%016x", uint64(math.MaxInt64-t.UnixNano())) }

// ColdSince returns an ID that is greater than those of all entries since a time, and less than all others.
func ColdSince(t time.Time) string { return coldID(t) + "~" }

// Append adds an entry, a JSON object, to a stream when the transaction is committed.
func (tx *Tx) Append(stream string, doc []byte) {
	id := coldID(tx.store.opts.Now()) + "-" + strings.ToLower(rand.Text()[:10])
	tx.write(coldKey(stream, id), &write{doc: doc})
}

// Cold returns the entries of a stream after one, the newest first, at most limit; after is "" for the newest. It needs
// no quorum.
func (s *Store) Cold(ctx context.Context, stream, after string, limit int) ([]ColdEntry, error) {
	page, err := s.coldKeys(ctx, stream, after, clientv3.WithLimit(int64(limit)))
	if err != nil {
		return nil, err
	}
	var entries []ColdEntry
	for _, kv := range page.Kvs {
		entries = append(entries, s.readCold(stream, kv))
	}
	return entries, nil
}

// readCold reads a stored entry.
func (s *Store) readCold(stream string, kv *mvccpb.KeyValue) ColdEntry {
	v, err := s.open(string(kv.Key), kv)
	return ColdEntry{ID: strings.TrimPrefix(string(kv.Key), coldKey(stream, "")), Doc: v.doc, Err: err,
		resealed: v.changed != 0}
}

// coldKeys reads the range of a stream after an entry.
func (s *Store) coldKeys(ctx context.Context, stream, after string, opts ...clientv3.OpOption) (
	*clientv3.GetResponse, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	from, end := coldKey(stream, after), clientv3.GetPrefixRangeEnd(coldKey(stream, ""))
	if after != "" {
		from += "\x00"
	}
	page, err := s.client.Get(ctx, from, append(opts, clientv3.WithRange(end), clientv3.WithSerializable())...)
	if err != nil {
		return nil, &trivet.Error{Op: "read " + stream, Err: unavailable(err)}
	}
	return page, nil
}

// trimPage is how many entries one request of TrimCold reads or deletes.
const trimPage = 1000

// TrimCold deletes the entries of a stream that are older than a time, and those beyond the newest keep.
func (s *Store) TrimCold(ctx context.Context, stream string, keep int, before time.Time) error {
	after := ColdSince(before)
	all, err := s.coldKeys(ctx, stream, "", clientv3.WithCountOnly())
	if err != nil {
		return err
	}
	if all.Count > int64(keep) {
		last, err := s.coldAt(ctx, stream, keep)
		if err != nil {
			return err
		}
		after = min(after, last)
	}
	for {
		page, err := s.coldKeys(ctx, stream, after, clientv3.WithKeysOnly(), clientv3.WithLimit(trimPage))
		if err != nil || len(page.Kvs) == 0 {
			return err
		}
		first, last := string(page.Kvs[0].Key), string(page.Kvs[len(page.Kvs)-1].Key)
		err = s.attempt(ctx, func(ctx context.Context) error {
			_, err := s.client.Delete(ctx, first, clientv3.WithRange(last+"\x00"))
			return err
		})
		if err != nil {
			return noQuorum("trim "+stream, err)
		}
	}
}

// coldAt returns the ID of the n-th newest entry of a stream, or of the oldest one.
func (s *Store) coldAt(ctx context.Context, stream string, n int) (id string, err error) {
	for n > 0 {
		page, err := s.coldKeys(ctx, stream, id, clientv3.WithKeysOnly(), clientv3.WithLimit(int64(min(n, trimPage))))
		if err != nil {
			return "", err
		}
		if len(page.Kvs) == 0 {
			break
		}
		id = strings.TrimPrefix(string(page.Kvs[len(page.Kvs)-1].Key), coldKey(stream, ""))
		n -= len(page.Kvs)
	}
	return id, nil
}

// FollowCold calls do with each entry of a stream, by any head, after a revision (0: from now on). It ends with ctx or
// when the watch fails, and returns the revision from which it can be resumed.
func (s *Store) FollowCold(ctx context.Context, stream string, after int64, do func(ColdEntry)) (int64, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if after == 0 {
		after = s.Revision()
	}
	for resp := range s.client.Watch(ctx, coldKey(stream, ""), clientv3.WithPrefix(), clientv3.WithRev(after+1)) {
		if resp.CompactRevision != 0 {
			return 0, &trivet.Error{Op: "follow " + stream, Err: trivet.ErrCompacted}
		}
		if err := resp.Err(); err != nil {
			return after, &trivet.Error{Op: "follow " + stream, Err: unavailable(err)}
		}
		for _, ev := range resp.Events {
			if e := s.readCold(stream, ev.Kv); ev.Type != clientv3.EventTypeDelete && !e.resealed {
				do(e)
			}
			after = ev.Kv.ModRevision
		}
	}
	return after, ctx.Err()
}
