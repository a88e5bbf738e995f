package store_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/cluster"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/storetest"
)

// twoHeads returns two stores over one member.
func twoHeads(t *testing.T) (*cluster.Member, []*head) {
	m := storetest.Member(t)
	return m, []*head{open(t, m.Client(), store.Options{Head: "head0"}),
		open(t, m.Client(), store.Options{Head: "head1"})}
}

// Many acquire the lease, one at a time, as soon as the previous holder releases it: no lease expires during this test.
func TestLeaseHasOneHolder(t *testing.T) {
	t.Parallel()
	_, heads := twoHeads(t)
	const each = 4
	var mu sync.Mutex // guards what follows
	var holders int
	var fences []int64
	var wg sync.WaitGroup
	for _, h := range heads {
		for range each {
			wg.Go(func() {
				err := h.WithLease(t.Context(), "x", time.Hour, func(_ context.Context, l *store.Lease) error {
					mu.Lock()
					holders++
					fences = append(fences, l.Fence())
					mu.Unlock()
					h.must(t, func(tx *store.Tx) error { // others wait for the lease meanwhile
						if err := h.machines.In(tx).Put(machine("m1", "")); err != nil {
							return err
						}
						return l.Check(tx)
					})
					mu.Lock()
					defer mu.Unlock()
					if holders--; holders != 0 {
						t.Errorf("%d others hold the lease", holders)
					}
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
	}
	wg.Wait()
	if len(fences) != each*len(heads) {
		t.Errorf("%d held the lease, want %d", len(fences), each*len(heads))
	}
	for i := 1; i < len(fences); i++ {
		if fences[i] <= fences[i-1] {
			t.Errorf("the fence decreased: %v", fences)
		}
	}
}

// A holder that renews keeps its lease for longer than its TTL, and WithLease returns its error.
func TestLeaseIsRenewed(t *testing.T) {
	t.Parallel()
	m, heads := twoHeads(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	mine := errors.New("mine")
	const ttl, renewals = 2 * time.Second, 5
	err := heads[0].WithLease(t.Context(), "x", ttl, func(held context.Context, l *store.Lease) error {
		var other sync.WaitGroup
		other.Go(func() {
			err := heads[1].WithLease(ctx, "x", ttl, func(context.Context, *store.Lease) error {
				if held.Err() == nil {
					t.Error("another holds the lease as well")
				}
				return nil
			})
			if err != nil && !errors.Is(err, trivet.ErrUnavailable) {
				t.Error(err)
			}
		})
		defer other.Wait()
		defer cancel()
		seen := 0
		for resp := range m.Client().Watch(held, "/trivet/-renew/x", clientv3.WithRev(1)) {
			if seen += len(resp.Events); seen > renewals {
				if !l.Held() && held.Err() == nil {
					t.Error("it is renewed but not held")
				}
				return mine
			}
		}
		return context.Cause(held)
	})
	if !errors.Is(err, mine) {
		t.Errorf("the holder ended with %v", err)
	}
	for _, of := range []string{"-lease/", "-renew/"} {
		left, err := m.Client().Get(t.Context(), "/trivet/"+of, clientv3.WithPrefix())
		if err != nil || left.Count > 0 {
			t.Errorf("keys left: %v, %v", left.Kvs, err)
		}
	}
}

// A holder whose renewals do not arrive is replaced. Its context ends before, and its later writes under the lease are
// refused.
func TestReplacedHolderIsFenced(t *testing.T) {
	t.Parallel()
	m := storetest.Member(t)
	link := newFaults(m.Client(), 1)
	h1, cut := open(t, m.Client(), store.Options{Head: "head1"}), open(t, link.client(), store.Options{Head: "head0"})
	err := cut.WithLease(t.Context(), "x", 400*time.Millisecond, func(held context.Context, old *store.Lease) error {
		link.cut(true)
		err := h1.WithLease(t.Context(), "x", time.Hour, func(_ context.Context, l *store.Lease) error {
			if !errors.Is(context.Cause(held), trivet.ErrFenced) {
				t.Errorf("the cause of the old holder's context is %v", context.Cause(held))
			}
			if !l.Held() || old.Held() {
				t.Errorf("the new holder holds it: %v; the old one: %v", l.Held(), old.Held())
			}
			if l.Fence() <= old.Fence() {
				t.Errorf("the fence is %d after %d", l.Fence(), old.Fence())
			}
			link.cut(false)
			_, err := cut.Update(t.Context(), func(tx *store.Tx) error {
				if err := old.Check(tx); err != nil {
					return err
				}
				return cut.machines.In(tx).Put(machine("m1", ""))
			})
			if !errors.Is(err, trivet.ErrFenced) {
				t.Errorf("a write of the old holder: %v", err)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		return held.Err()
	})
	if !errors.Is(err, trivet.ErrFenced) || !errors.Is(err, context.Canceled) {
		t.Errorf("the old holder ended with %v", err)
	}
	if h1.machines.Len() != 0 {
		t.Error("the old holder's write was committed")
	}
}

// The lease may be lost between the check and the commit: the commit compares it.
func TestCommitComparesLease(t *testing.T) {
	t.Parallel()
	m, heads := twoHeads(t)
	h := heads[0]
	runs := 0
	err := h.WithLease(t.Context(), "x", time.Hour, func(ctx context.Context, l *store.Lease) error {
		_, err := h.Update(ctx, func(tx *store.Tx) error {
			if err := l.Check(tx); err != nil {
				return err
			}
			if runs++; runs == 1 { // as another head that acquires the lease would
				if _, err := m.Client().Put(ctx, "/trivet/-lease/x", `{}`); err != nil {
					return err
				}
			}
			return h.machines.In(tx).Put(machine("m1", ""))
		})
		return err
	})
	if !errors.Is(err, trivet.ErrFenced) || runs != 1 || h.machines.Len() != 0 {
		t.Errorf("%v after %d runs, with %d machines written", err, runs, h.machines.Len())
	}
}

func TestInvalidLeases(t *testing.T) {
	t.Parallel()
	_, heads := twoHeads(t)
	do := func(context.Context, *store.Lease) error { t.Error("the lease was held"); return nil }
	if err := heads[0].WithLease(t.Context(), "../x", time.Hour, do); !errors.Is(err, trivet.ErrInvalid) {
		t.Errorf("a path for a name: %v", err)
	}
	if err := heads[0].WithLease(t.Context(), "x", 0, do); !errors.Is(err, trivet.ErrInvalid) {
		t.Errorf("no time: %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := heads[0].WithLease(ended, "x", time.Hour, do); !errors.Is(err, trivet.ErrUnavailable) {
		t.Errorf("no time to wait: %v", err)
	}
}
