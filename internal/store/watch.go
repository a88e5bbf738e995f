package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/faultinject"
)

const (
	// batchEvents and batchBytes are approximately what one Next returns at most.
	batchEvents = 256
	batchBytes  = 4 << 20
	// maxReplay and maxReplayBytes bound what is read from etcd for a watcher until it is up to date: the revisions, and
	// the keys and values. Beyond, a list is cheaper. maxUnknownReplay bounds the revisions of which this head does not
	// know the size, since they are older than its copy.
	maxReplay        = 20_000
	maxReplayBytes   = 64 << 20
	maxUnknownReplay = 1000
	// maxReplays bounds the watchers of this head for which etcd is read at the same time, and replayTime how long that
	// takes for one: afterwards a list is cheaper, too.
	maxReplays = 4
	replayTime = 10 * time.Second
)

// Watcher returns the changes of records of some kinds, in order. It must be used by one goroutine. It uses no
// resources outside of Next and needs no closing. A slow consumer blocks nothing: it gets events that the head has
// evicted from etcd, until etcd has compacted them (ErrCompacted).
type Watcher struct {
	store *Store
	kinds map[string]bool // as in keys; nil: all
	rev   int64           // everything up to here was returned
	wake  chan struct{}
	bytes int // that were read from etcd since it was last up to date
	batch int // the bytes that Next returns at most, approximately
}

// Watch begins a watch of the kinds (none: all) after a revision. A revision of 0 means from now on.
func (s *Store) Watch(from int64, kinds ...trivet.Kind) *Watcher {
	w := &Watcher{store: s, rev: from, wake: make(chan struct{}, 1), batch: batchBytes}
	if from <= 0 {
		w.rev = s.snapshot().rev
	} else if faultinject.WatchRepeated {
		w.rev--
	}
	for _, k := range kinds {
		if w.kinds == nil {
			w.kinds = map[string]bool{}
		}
		w.kinds[kindPart(k)] = true
	}
	return w
}

// Revision returns the revision from which a watch resumes after the last Next. It also increases while there are no
// matching changes.
func (w *Watcher) Revision() int64 { return w.rev }

// Rewind makes Next return again what followed a revision, and from then on fewer bytes at once, for a consumer that
// cannot hold all that it has got.
func (w *Watcher) Rewind(revision int64, bytes int) {
	w.rev, w.batch = revision, min(bytes, batchBytes)
}

// enough reports whether Next has enough events. used is their bytes.
func (w *Watcher) enough(events []*Event, used int) bool {
	return len(events) >= batchEvents || used >= w.batch
}

// Next waits for changes and returns them, always in whole revisions. Errors: ErrCompacted if the change feed does not
// reach back that far, or it would be too much to read (list, then watch from the list's revision); ErrUnavailable;
// ctx's, after which Next may be called again.
func (w *Watcher) Next(ctx context.Context) ([]*Event, error) {
	defer w.store.history.remove(w)
	for {
		events, replayed, err := w.poll(ctx)
		if err != nil || len(events) > 0 {
			return events, err
		}
		if replayed {
			continue
		}
		select {
		case <-w.wake:
		case <-w.store.done:
			return nil, errClosed
		case <-ctx.Done():
			w.advance()
			return nil, ctx.Err()
		}
	}
}

// Poll is Next for a caller that does not wait: it returns none where there are no changes up to now.
func (w *Watcher) Poll(ctx context.Context) ([]*Event, error) {
	defer w.store.history.remove(w)
	for {
		events, replayed, err := w.poll(ctx)
		if err != nil || len(events) > 0 || !replayed {
			return events, err
		}
	}
}

// poll returns the next changes that there are. replayed: they were read from etcd, and there may be more.
func (w *Watcher) poll(ctx context.Context) (events []*Event, replayed bool, err error) {
	events, upTo, ok := w.store.history.after(w, w.rev)
	if !ok {
		if events, upTo, err = w.replay(ctx); err != nil {
			return nil, false, &trivet.Error{Op: "watch", Err: fmt.Errorf("from revision %d: %w", w.rev, err)}
		}
	} else {
		w.bytes = 0
	}
	w.rev = upTo
	if faultinject.WatchSkipped && len(events) > 1 {
		events = events[1:]
	}
	if faultinject.WatchReordered && len(events) > 1 {
		events[0], events[1] = events[1], events[0]
	}
	return events, !ok, nil
}

var errClosed = fmt.Errorf("%w: the store is closed", trivet.ErrUnavailable)

func (w *Watcher) wants(kind string) bool {
	return w.kinds[kind] || w.kinds == nil && !isInternal(kind)
}

func (w *Watcher) notify() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// advance raises the revision of a watcher that has no new events.
func (w *Watcher) advance() {
	if events, upTo, ok := w.store.history.after(w, w.rev); ok && len(events) == 0 {
		w.rev = upTo
	}
}

// replayLimit bounds replays.
type replayLimit struct{ revisions, unknown, bytes int64 }

// replay reads events from etcd that the history has evicted. It waits until the copy has them as well, since
// consumers read the records of the events.
func (w *Watcher) replay(ctx context.Context) (events []*Event, upTo int64, err error) {
	if err := w.checkReplay(); err != nil {
		return nil, 0, err
	}
	select {
	case w.store.replays <- struct{}{}:
		defer func() { <-w.store.replays }()
	case <-ctx.Done():
		return nil, 0, ctx.Err()
	}
	if ctx.Err() != nil {
		return nil, 0, ctx.Err()
	}
	caller := ctx
	ctx, cancel := whole(caller)
	defer cancel()
	feed := w.store.client.Watch(ctx, "", clientv3.WithPrefix(), clientv3.WithRev(w.rev+1), clientv3.WithPrevKV())
	select {
	case resp, ok := <-feed:
		if resp.CompactRevision != 0 {
			return nil, 0, fmt.Errorf("%w: at %d", trivet.ErrCompacted, resp.CompactRevision)
		}
		if err := resp.Err(); !ok || err != nil {
			return nil, 0, errors.Join(trivet.ErrUnavailable, err, ctx.Err())
		}
		if events, upTo, err = w.replayed(ctx, resp.Events); err != nil {
			return nil, 0, err
		}
		return events, upTo, w.store.pending.wait(ctx, upTo)
	case <-w.store.done:
		return nil, 0, errClosed
	case <-ctx.Done():
		if errors.Is(caller.Err(), context.Canceled) {
			return nil, 0, caller.Err()
		}
		return nil, 0, fmt.Errorf("%w: it takes longer than %s to read", trivet.ErrCompacted, replayTime)
	}
}

// whole returns the context of a replay. A deadline of its caller does not interrupt one that has begun: it would begin
// again from the start, and never end where it takes longer.
func whole(caller context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(caller), replayTime)
	stop := context.AfterFunc(caller, func() {
		if errors.Is(caller.Err(), context.Canceled) {
			cancel()
		}
	})
	return ctx, func() {
		stop()
		cancel()
	}
}

// checkReplay refuses a replay that reads too much, before anything is read: etcd reads all of it at once.
func (w *Watcher) checkReplay() error {
	back, limit := w.store.snapshot().rev-w.rev, w.store.replay
	bytes, unknown := w.store.volume.since(w.rev)
	if bytes = max(bytes, int64(w.bytes)); back <= limit.revisions && bytes <= limit.bytes && unknown <= limit.unknown {
		return nil
	}
	return fmt.Errorf("%w: it is %d revisions and %d bytes behind, %d of the revisions are older than this head's copy",
		trivet.ErrCompacted, back, bytes, unknown)
}

// replayed converts the first of etcd's events, as many as Next returns, in whole revisions. The others are not
// decoded.
func (w *Watcher) replayed(ctx context.Context, from []*clientv3.Event) (events []*Event, upTo int64, err error) {
	used, moved := 0, w.store.movedIn(from)
	for _, ev := range from {
		if rev := ev.Kv.ModRevision; rev != upTo {
			if w.enough(events, used) {
				return events, upTo, nil
			}
			upTo = rev
		}
		w.bytes += len(ev.Kv.Key) + len(ev.Kv.Value)
		if ev.PrevKv != nil {
			w.bytes += len(ev.PrevKv.Value)
		}
		if moved.has(ev) {
			continue
		}
		converted, err := w.replayedEvents(ctx, ev)
		if err != nil {
			return nil, 0, err
		}
		for _, e := range converted {
			events, used = append(events, e), used+e.Bytes()
		}
	}
	return events, upTo, nil
}

// replayedEvents converts one of etcd's events; none, if it is not of a kind that is watched.
func (w *Watcher) replayedEvents(ctx context.Context, ev *clientv3.Event) (events []*Event, err error) {
	key, revision := string(ev.Kv.Key), ev.Kv.ModRevision
	kind, _, ok := splitKey(key)
	switch {
	case !ok || !w.wants(kind):
		return nil, nil
	case isHistory(key):
		return w.store.historyEvents(ev), nil
	}
	var was, is *entry
	if ev.PrevKv != nil {
		was = w.store.read(ev.PrevKv, w.specsAt(ctx, revision-1, &err))
	}
	if ev.Type != clientv3.EventTypeDelete {
		is = w.store.read(ev.Kv, w.specsAt(ctx, revision, &err))
	}
	if e := w.store.newEvent(key, was, is, revision); e != nil {
		events = append(events, e)
	}
	return events, err
}
