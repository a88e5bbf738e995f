package store_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// faults is a line to a member on which calls, answers and watches are lost: some by chance, all while it is cut. Calls that
// were lost may still arrive later.
type faults struct {
	to      *clientv3.Client
	arrive  sync.WaitGroup // calls that arrive later
	mu      sync.Mutex
	rand    *rand.Rand // guarded by mu, like all that follow
	percent int        // of calls and of watch responses
	isCut   bool
	healed  chan struct{} // closed when a cut line is healed
}

var errLost = errors.New("the answer was lost")

func newFaults(to *clientv3.Client, seed uint64) *faults {
	return &faults{to: to, rand: rand.New(rand.NewPCG(seed, 0))}
}

// client speaks over the line.
func (f *faults) client() *clientv3.Client {
	c := clientv3.NewCtxClient(context.Background())
	c.KV, c.Watcher = faultyKV{f.to.KV, f}, faultyWatcher{f.to.Watcher, f}
	return c
}

// lose makes so many of a hundred calls fail, one way or another.
func (f *faults) lose(percent int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.percent = percent
}

// cut makes calls wait, and watches say nothing, until the line is healed.
func (f *faults) cut(cut bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if cut && !f.isCut {
		f.healed = make(chan struct{})
	} else if !cut && f.isCut {
		close(f.healed)
	}
	f.isCut = cut
}

// roll says whether something is lost now, and in which of some ways.
func (f *faults) roll(ways int) (way int, lost bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.rand.IntN(ways), f.rand.IntN(100) < f.percent
}

// breaks says whether a watch ends now: less often, since it carries what all others do.
func (f *faults) breaks() bool {
	n, lost := f.roll(4)
	return lost && n == 0
}

// passable returns when the line is not cut.
func (f *faults) passable(ctx context.Context) error {
	f.mu.Lock()
	healed, isCut := f.healed, f.isCut
	f.mu.Unlock()
	if isCut {
		select {
		case <-healed:
		case <-ctx.Done():
		}
	}
	return ctx.Err()
}

// call makes one call over the line.
func call[T any](ctx context.Context, f *faults, do func(context.Context) (T, error)) (none T, _ error) {
	if err := f.passable(ctx); err != nil {
		return none, err
	}
	way, lost := f.roll(3)
	switch {
	case !lost:
		return do(ctx)
	case way == 0: // it does not arrive
	case way == 1: // the answer does not
		_, _ = do(ctx)
	case way == 2: // it arrives when nobody waits for it any more
		f.arrive.Go(func() {
			wait, _ := f.roll(30)
			time.Sleep(time.Duration(wait) * time.Millisecond)
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
			defer cancel()
			_, _ = do(ctx)
		})
	}
	return none, errLost
}

type faultyKV struct {
	clientv3.KV
	f *faults
}

func (k faultyKV) Put(ctx context.Context, key, val string, opts ...clientv3.OpOption) (*clientv3.PutResponse, error) {
	return call(ctx, k.f, func(ctx context.Context) (*clientv3.PutResponse, error) { return k.KV.Put(ctx, key, val, opts...) })
}

func (k faultyKV) Get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	return call(ctx, k.f, func(ctx context.Context) (*clientv3.GetResponse, error) { return k.KV.Get(ctx, key, opts...) })
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

// Watch is closed where a response is lost.
func (w faultyWatcher) Watch(ctx context.Context, key string, opts ...clientv3.OpOption) clientv3.WatchChan {
	ctx, cancel := context.WithCancel(ctx)
	to := make(chan clientv3.WatchResponse)
	go func() { // ends with ctx
		defer close(to)
		defer cancel()
		for resp := range w.Watcher.Watch(ctx, key, opts...) {
			if w.f.breaks() || w.f.passable(ctx) != nil {
				return
			}
			select {
			case to <- resp:
			case <-ctx.Done():
				return
			}
		}
	}()
	return to
}
