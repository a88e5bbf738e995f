package store_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/cluster"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/storetest"
)

// longText returns a text of about 1,000 bytes that packing does not shorten.
func longText() (text string) {
	for range 40 {
		text += rand.Text()
	}
	return text[:1000]
}

// watches counts etcd's watches that begin, and delays them while it is held.
type watches struct {
	clientv3.Watcher
	begun atomic.Int64
	held  atomic.Pointer[chan struct{}]
}

func (w *watches) Watch(ctx context.Context, key string, opts ...clientv3.OpOption) clientv3.WatchChan {
	w.begun.Add(1)
	if held := w.held.Load(); held != nil {
		<-*held
	}
	return w.Watcher.Watch(ctx, key, opts...)
}

func openWatched(t *testing.T, m *cluster.Member) (*head, *watches) {
	t.Helper()
	link := &watches{Watcher: m.Client().Watcher}
	client := clientv3.NewCtxClient(context.Background())
	client.KV, client.Watcher = m.Client().KV, link
	return open(t, client, store.Options{}), link
}

// etcd reads all that a resumed watch asks for at once. So one that asks for too many bytes is refused before etcd
// reads any, also by a head whose copy is newer.
func TestReplayIsRefusedUnread(t *testing.T) {
	t.Parallel()
	m := storetest.Member(t)
	h, link := openWatched(t, m)
	first := h.put(t, "m0", "")
	var middle int64
	for i := range 60 {
		rev := h.put(t, fmt.Sprint("m", i%3), longText())
		if i == 39 {
			middle = rev
		}
	}
	h.ForgetHistory()
	h.LimitReplay(1000, 140_000)
	begun := link.begun.Load()
	if events, err := h.Watch(first).Next(t.Context()); !errors.Is(err, trivet.ErrCompacted) {
		t.Errorf("60 revisions behind, of at most 140,000 bytes: %d events, %v", len(events), err)
	}
	if n := link.begun.Load() - begun; n != 0 {
		t.Errorf("etcd was read %d times before the refusal", n)
	}
	if events, err := h.Watch(middle).Next(t.Context()); err != nil || len(events) == 0 {
		t.Errorf("20 revisions behind, of at most 140,000 bytes: %d events, %v", len(events), err)
	}
	later, link := openWatched(t, m)
	later.LimitUnknown(59)
	begun = link.begun.Load()
	if events, err := later.Watch(first).Next(t.Context()); !errors.Is(err, trivet.ErrCompacted) {
		t.Errorf("60 unknown revisions behind, of at most 59: %d events, %v", len(events), err)
	}
	if n := link.begun.Load() - begun; n != 0 {
		t.Errorf("etcd was read %d times before the refusal", n)
	}
}

// Few watchers read from etcd at the same time. The others wait for them.
func TestReplaysAtOnce(t *testing.T) {
	t.Parallel()
	h, link := openWatched(t, storetest.Member(t))
	first := h.put(t, "m0", "")
	h.put(t, "m1", "")
	h.ForgetHistory()
	held := make(chan struct{})
	link.held.Store(&held)
	begun := link.begun.Load()
	const watchers = 3 * store.MaxReplays
	var all sync.WaitGroup
	for range watchers {
		all.Go(func() {
			if events, err := h.Watch(first).Next(t.Context()); err != nil || len(events) != 1 {
				t.Errorf("%d events, %v", len(events), err)
			}
		})
	}
	for released := range int64(watchers) {
		if n := link.begun.Load() - begun - released; n > store.MaxReplays {
			t.Errorf("%d watchers read at the same time", n)
		}
		held <- struct{}{}
	}
	all.Wait()
}

// A replay that takes longer than its caller waits for changes is not begun again: it would never end.
func TestReplayOutlastsItsCaller(t *testing.T) {
	t.Parallel()
	h, link := openWatched(t, storetest.Member(t))
	first := h.put(t, "m0", "")
	second := h.put(t, "m0", "r1")
	h.ForgetHistory()
	held := make(chan struct{})
	link.held.Store(&held)
	begun := link.begun.Load()
	ctx, cancel := context.WithCancel(t.Context())
	expired, cancelExpired := context.WithTimeout(ctx, 2*time.Second)
	defer cancelExpired()
	time.AfterFunc(3*time.Second, func() { close(held) })
	w := h.Watch(first)
	if events, err := w.Next(expired); err != nil || len(events) != 1 || w.Revision() != second {
		t.Errorf("%d events up to %d, %v; want one at %d", len(events), w.Revision(), err, second)
	}
	w.Rewind(first, 1<<20)
	if events, err := w.Next(expired); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a replay begins after the deadline: %d events, %v", len(events), err)
	}
	if n := link.begun.Load() - begun; n != 1 {
		t.Errorf("etcd was read %d times", n)
	}
	held = make(chan struct{})
	time.AfterFunc(200*time.Millisecond, func() {
		cancel()
		close(held)
	})
	if events, err := w.Next(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("its caller has gone: %d events, %v", len(events), err)
	}
}
