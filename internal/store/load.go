package store

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/trivet-project/trivet"
)

// The copy is loaded page by page: while one is read from etcd, the one before it is decrypted and decoded, by all
// processors.

const listPage = 1000

// load lists the store from this member, with or without a leader.
func (s *Store) load(ctx context.Context) (*snapshot, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends list
	next := newSnapshot(0)
	s.refusals.reset()
	s.metrics.sizes.reset()
	s.resetTallies()
	s.sealed.reset()
	pages := make(chan *clientv3.GetResponse)
	var err error // of list, once pages is closed
	go func() {
		defer close(pages)
		err = s.list(ctx, pages)
	}()
	for page := range pages {
		next.rev = page.Header.Revision
		for _, e := range s.readAll(page.Kvs, next) {
			s.loaded(e, next)
		}
	}
	if err != nil {
		return nil, &trivet.Error{Op: "load the store", Err: fmt.Errorf("%w: %w", trivet.ErrUnavailable, err)}
	}
	return next, s.checkKeys(next)
}

// list sends all pages of the store's keys at one revision, which their headers have.
func (s *Store) list(ctx context.Context, pages chan<- *clientv3.GetResponse) error {
	from, opts := prefix, []clientv3.OpOption{
		clientv3.WithRange(clientv3.GetPrefixRangeEnd(prefix)), clientv3.WithLimit(listPage),
		clientv3.WithSerializable(),
	}
	for revision := int64(0); ; {
		page, err := s.client.Get(ctx, from, opts...)
		if err != nil {
			return err
		}
		if revision == 0 {
			revision = page.Header.Revision
			opts = append(opts, clientv3.WithRev(revision))
		}
		page.Header.Revision = revision
		select {
		case pages <- page:
		case <-ctx.Done():
			return ctx.Err()
		}
		if !page.More {
			return nil
		}
		from = string(page.Kvs[len(page.Kvs)-1].Key) + "\x00"
	}
}

// readAll is read for many keys, in their order. The specs among them, and those in next, are the specs of the others.
func (s *Store) readAll(kvs []*mvccpb.KeyValue, next *snapshot) []*entry {
	all, find := make([]*entry, len(kvs)), s.specsIn(next)
	inParallel(len(kvs), func(i int) {
		if all[i] = s.opened(kvs[i]); all[i] != nil && all[i].isSpec() {
			s.decode(all[i])
		}
	})
	for _, e := range all {
		switch {
		case e == nil:
		case e.isSpec():
			next.put(e)
		default:
			e.findSpec(find)
		}
	}
	inParallel(len(all), func(i int) {
		if e := all[i]; e != nil && !e.isSpec() {
			s.decode(e)
		}
	})
	return all
}

// loaded adds an entry that was read to the copy, unless it is nil.
func (s *Store) loaded(e *entry, next *snapshot) {
	if e == nil {
		return
	}
	if !e.isSpec() {
		next.put(e)
	}
	s.refusals.note(e)
	s.metrics.sizes.add(e, 1)
	e.tally(1)
	s.sealed.add(e)
	e.keep()
	if e.resting {
		e.forgetDecoded()
	}
}

// together is how many calls one goroutine makes at a time.
const together = 32

// inParallel calls do for 0 to n-1, on all processors.
func inParallel(n int, do func(i int)) {
	var begun atomic.Int64
	var running sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), (n+together-1)/together) {
		running.Go(func() {
			for {
				from := int(begun.Add(together)) - together
				if from >= n {
					return
				}
				for i := from; i < min(from+together, n); i++ {
					do(i)
				}
			}
		})
	}
	running.Wait()
}
