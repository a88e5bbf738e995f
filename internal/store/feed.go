package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/wait"
)

// The feed is one goroutine that creates snapshots: from a list at the start, then from one watch of all keys. Nothing
// else creates them, and readers never block it.

// errGap: the watch skipped a revision. Since it is a watch of all keys, every revision has an event.
var errGap = errors.New("the watch skipped a revision")

// read returns the entry of a key, or nil if the key is not that of a record or of the store itself.
func (s *Store) read(kv *mvccpb.KeyValue, find specs) *entry {
	e := s.opened(kv)
	if e != nil {
		e.findSpec(find)
		s.decode(e)
	}
	return e
}

// opened is read without the record and its spec.
func (s *Store) opened(kv *mvccpb.KeyValue) *entry {
	key := string(kv.Key)
	kind, name, ok := splitKey(key)
	if !ok {
		return nil
	}
	return s.openEntry(key, kind, name, kv)
}

// decode decodes an entry that was opened, and logs one that cannot be decoded.
func (s *Store) decode(e *entry) {
	e.decodeWith(s.kinds)
	if e.err != nil && !e.refused() {
		s.log.Error("cannot decode a stored record", "key", e.key, "error", e.err)
	}
}

// feed follows the store until ctx ends.
func (s *Store) feed(ctx context.Context) {
	for ctx.Err() == nil {
		begin := s.snapshot().rev
		err := s.follow(ctx)
		if ctx.Err() != nil {
			return
		}
		s.log.Warn("the store's watch ended; starting a new one", "error", err, "revision", s.snapshot().rev)
		if errors.Is(err, trivet.ErrCompacted) || errors.Is(err, errGap) {
			err = s.reload(ctx)
		}
		if err != nil && s.snapshot().rev == begin {
			_ = wait.Sleep(ctx, 100*time.Millisecond)
		}
	}
}

// follow applies the events of a watch until it ends.
func (s *Store) follow(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for resp := range s.client.Watch(ctx, "", clientv3.WithPrefix(), clientv3.WithRev(s.snapshot().rev+1)) {
		if resp.CompactRevision != 0 {
			return fmt.Errorf("%w: at %d", trivet.ErrCompacted, resp.CompactRevision)
		}
		if err := resp.Err(); err != nil {
			return err
		}
		if err := s.apply(resp.Events); err != nil {
			return err
		}
	}
	return errors.New("the watch was closed")
}

// apply creates the next snapshot from the events of whole revisions. Events that are already in the snapshot are
// ignored.
func (s *Store) apply(events []*clientv3.Event) error {
	next := s.snapshot().next()
	begin, written := next.rev, 0
	var changes []*Event
	moved := s.movedIn(events)
	for _, ev := range events {
		rev := ev.Kv.ModRevision
		if rev <= begin {
			continue
		}
		if rev > next.rev+1 {
			return fmt.Errorf("%w: %d follows %d", errGap, rev, next.rev)
		}
		next.rev = rev
		written += len(ev.Kv.Key) + len(ev.Kv.Value)
		if s.defects.drop(ev) {
			continue
		}
		if isHistory(string(ev.Kv.Key)) {
			changes = append(changes, s.historyEvents(ev)...)
		} else if e := s.applyEvent(next, ev); e != nil && !moved.has(ev) {
			changes = append(changes, e)
		}
	}
	if next.rev > begin {
		s.volume.add(next.rev, int64(written))
		s.publish(next, changes)
	}
	return nil
}

func (s *Store) applyEvent(next *snapshot, ev *clientv3.Event) *Event {
	var was, is *entry
	key := string(ev.Kv.Key)
	if ev.Type == clientv3.EventTypeDelete {
		was = next.del(key)
		s.refusals.forget(was)
		s.sealed.remove(was)
	} else if is = s.read(ev.Kv, s.specsIn(next)); is != nil {
		was = next.put(is)
		s.refusals.forget(was)
		s.refusals.note(is)
		s.sealed.replace(was, is)
	}
	s.metrics.sizes.replace(was, is)
	was.tally(-1)
	is.tally(1)
	if is != nil {
		s.pending.committed(is.tx, is.rev)
		is.keep()
		is.noteDecoded()
	}
	return s.newEvent(string(ev.Kv.Key), was, is, ev.Kv.ModRevision)
}

// publish makes a snapshot visible to readers, then to waiters and watchers.
func (s *Store) publish(next *snapshot, changes []*Event) {
	s.current.Store(next)
	s.metrics.revision.Set(float64(next.rev))
	s.history.add(next.rev, changes)
	s.pending.reached(next.rev)
}

// reload creates a snapshot from a list when the watch cannot be resumed. The changes in between are lost: waiters for
// the outcome of a transaction and watchers get an error.
func (s *Store) reload(ctx context.Context) error {
	next, err := s.load(ctx)
	if err != nil {
		return err
	}
	for e := range next.under(prefix, "") {
		s.pending.committed(e.tx, e.rev)
	}
	s.pending.markMissed()
	s.current.Store(next)
	s.metrics.revision.Set(float64(next.rev))
	s.history.reset(next.rev)
	s.volume.reset(next.rev)
	s.pending.reached(next.rev)
	s.metrics.reloads.Inc()
	return nil
}
