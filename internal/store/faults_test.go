package store_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// faults is a link to a member that loses calls, responses and watches: some by chance, all while it is cut. Calls that
// were lost may still arrive later.
type faults struct {
	to      *clientv3.Client
	pending sync.WaitGroup // calls that arrive later

	mu      sync.Mutex
	rand    *rand.Rand      // guarded by mu, as all below
	percent int             // of calls that are lost
	healed  chan struct{}   // closed when a cut link is healed; nil: it is not cut
	held    chan struct{}   // closed when the next call may arrive; nil: it is not held
	silent  int             // calls that arrive, and whose responses are lost
	skip    int64           // a revision that the next watch omits
	watches []chan struct{} // closed when the watch may deliver responses
}

var errLost = errors.New("the response was lost")

func newFaults(to *clientv3.Client, seed uint64) *faults {
	return &faults{to: to, rand: rand.New(rand.NewPCG(seed, 0))}
}

// client returns a client that uses the link.
func (f *faults) client() *clientv3.Client {
	c := clientv3.NewCtxClient(context.Background())
	c.KV, c.Watcher = faultyKV{f.to.KV, f}, faultyWatcher{f.to.Watcher, f}
	return c
}

// lose makes a percentage of the calls fail.
func (f *faults) lose(percent int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.percent = percent
}

// cut makes calls wait, and watches end, until the link is healed.
func (f *faults) cut(cut bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if cut {
		f.healed = make(chan struct{})
	} else {
		close(f.healed)
		f.healed = nil
	}
}

// hold makes the next call fail at once, and arrive when it is released.
func (f *faults) hold() (release func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	held := make(chan struct{})
	f.held = held
	return func() { close(held); f.pending.Wait() }
}

// loseResponses loses the responses of the next n calls.
func (f *faults) loseResponses(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.silent = n
}

func (f *faults) takeHeld() chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	held := f.held
	f.held = nil
	return held
}

// stall stops the delivery of all current watches until they are released.
func (f *faults) stall() (release func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	stalled := make(chan struct{})
	for i := range f.watches {
		f.watches[i] = stalled
	}
	return func() { close(stalled) }
}

// newWatch registers a watch and returns its number.
func (f *faults) newWatch() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.watches = append(f.watches, nil)
	return len(f.watches) - 1
}

// waitStalled returns when a watch is not stalled.
func (f *faults) waitStalled(ctx context.Context, watch int) {
	f.mu.Lock()
	stalled := f.watches[watch]
	f.mu.Unlock()
	if stalled != nil {
		select {
		case <-stalled:
		case <-ctx.Done():
		}
	}
}

// omit makes a watch omit a revision, once.
func (f *faults) omit(rev int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.skip = rev
}

// filter returns the events of a response without the omitted revision.
func (f *faults) filter(events []*clientv3.Event) []*clientv3.Event {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := len(events)
	omitted := func(ev *clientv3.Event) bool { return ev.Kv.ModRevision == f.skip }
	events = slices.DeleteFunc(slices.Clone(events), omitted)
	if len(events) < all {
		f.skip = 0
	}
	return events
}

// The outcomes of a call.
const (
	passes = iota
	lostCall
	lostResponse
	lateCall // it arrives after its caller has given up
)

// outcome chooses the outcome of the next call.
func (f *faults) outcome() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.silent > 0:
		f.silent--
		return lostResponse
	case f.rand.IntN(100) < f.percent:
		return lostCall + f.rand.IntN(3)
	}
	return passes
}

// breaks reports whether a watch ends now. That is rarer than the loss of a call, since a watch has the changes of all
// calls.
func (f *faults) breaks() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.healed != nil || f.rand.IntN(400) < f.percent
}

// waitHealed returns when the link is not cut.
func (f *faults) waitHealed(ctx context.Context) error {
	f.mu.Lock()
	healed := f.healed
	f.mu.Unlock()
	if healed != nil {
		select {
		case <-healed:
		case <-ctx.Done():
		}
	}
	return ctx.Err()
}

// call makes one call over the link.
func call[T any](ctx context.Context, f *faults, do func(context.Context) (T, error)) (none T, _ error) {
	if err := f.waitHealed(ctx); err != nil {
		return none, err
	}
	if held := f.takeHeld(); held != nil {
		late(ctx, f, held, do)
		return none, errLost
	}
	switch f.outcome() {
	case passes:
		return do(ctx)
	case lostResponse:
		_, _ = do(ctx)
	case lateCall:
		soon := make(chan struct{})
		time.AfterFunc(rand.N(30*time.Millisecond), func() { close(soon) })
		late(ctx, f, soon, do)
	}
	return none, errLost
}

// late makes a call when it may arrive.
func late[T any](ctx context.Context, f *faults, may <-chan struct{}, do func(context.Context) (T, error)) {
	f.pending.Go(func() {
		<-may
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		_, _ = do(ctx)
	})
}

type faultyKV struct {
	clientv3.KV
	f *faults
}

func (k faultyKV) Put(ctx context.Context, key, val string, opts ...clientv3.OpOption) (*clientv3.PutResponse, error) {
	return call(ctx, k.f, func(ctx context.Context) (*clientv3.PutResponse, error) {
		return k.KV.Put(ctx, key, val, opts...)
	})
}

func (k faultyKV) Get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	return call(ctx, k.f, func(ctx context.Context) (*clientv3.GetResponse, error) {
		return k.KV.Get(ctx, key, opts...)
	})
}

func (k faultyKV) Txn(ctx context.Context) clientv3.Txn { return &faultyTxn{ctx: ctx, k: k} }

// faultyTxn is a transaction without an Else, which the store does not use.
type faultyTxn struct {
	clientv3.Txn
	ctx   context.Context
	k     faultyKV
	ifs   []clientv3.Cmp
	thens []clientv3.Op
}

func (t *faultyTxn) If(ifs ...clientv3.Cmp) clientv3.Txn    { t.ifs = ifs; return t }
func (t *faultyTxn) Then(thens ...clientv3.Op) clientv3.Txn { t.thens = thens; return t }

func (t *faultyTxn) Commit() (*clientv3.TxnResponse, error) {
	return call(t.ctx, t.k.f, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return t.k.KV.Txn(ctx).If(t.ifs...).Then(t.thens...).Commit()
	})
}

type faultyWatcher struct {
	clientv3.Watcher
	f *faults
}

// Watch returns a channel that is closed when a response is lost.
func (w faultyWatcher) Watch(ctx context.Context, key string, opts ...clientv3.OpOption) clientv3.WatchChan {
	ctx, cancel := context.WithCancel(ctx)
	number := w.f.newWatch()
	to := make(chan clientv3.WatchResponse)
	go func() { // ends with ctx
		defer close(to)
		defer cancel()
		if w.f.waitHealed(ctx) != nil {
			return
		}
		for resp := range w.Watcher.Watch(ctx, key, opts...) {
			if w.f.breaks() {
				return
			}
			w.f.waitStalled(ctx, number)
			resp.Events = w.f.filter(resp.Events)
			select {
			case to <- resp:
			case <-ctx.Done():
				return
			}
		}
	}()
	return to
}
