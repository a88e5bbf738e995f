package store_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/storetest"
)

// gate holds the transactions of a client until it is opened, and counts them.
type gate struct {
	clientv3.KV
	open chan struct{}
	lose chan struct{} // closed: the first one has no response
	sent atomic.Int64
}

// gated returns a client of a member behind a gate.
func gated(t *testing.T, to *clientv3.Client) (*clientv3.Client, *gate) {
	t.Helper()
	c := clientv3.NewCtxClient(t.Context())
	g := &gate{KV: to.KV, open: make(chan struct{}), lose: make(chan struct{})}
	c.KV, c.Watcher = g, to.Watcher
	return c, g
}

func (g *gate) Txn(ctx context.Context) clientv3.Txn { return &gatedTxn{g.KV.Txn(ctx), g, false} }

type gatedTxn struct {
	clientv3.Txn
	gate  *gate
	guard bool // it writes a guard, which passes the gate
}

func (t *gatedTxn) If(ifs ...clientv3.Cmp) clientv3.Txn {
	return &gatedTxn{t.Txn.If(ifs...), t.gate, false}
}

func (t *gatedTxn) Then(thens ...clientv3.Op) clientv3.Txn {
	guard := len(thens) == 1 && strings.HasPrefix(string(thens[0].KeyBytes()), "/trivet/-guard/")
	return &gatedTxn{t.Txn.Then(thens...), t.gate, guard}
}

func (t *gatedTxn) Commit() (*clientv3.TxnResponse, error) {
	if t.guard {
		return t.Txn.Commit()
	}
	if t.gate.sent.Add(1) > 1 {
		<-t.gate.open
		return t.Txn.Commit()
	}
	select {
	case <-t.gate.open:
		return t.Txn.Commit()
	case <-t.gate.lose:
		return nil, rpctypes.ErrTimeout
	}
}

// groupHead is a head with a group, whose transactions are held by a gate.
type groupHead struct {
	*head
	group  *store.Group
	member *clientv3.Client // without the gate
	gate   *gate
	errs   chan error
}

func newGroupHead(t *testing.T, opts store.Options) *groupHead {
	t.Helper()
	opts.AttemptTimeout, opts.Timeout = time.Minute, time.Minute
	member := storetest.Member(t).Client()
	client, g := gated(t, member)
	h := open(t, client, opts)
	return &groupHead{h, h.NewGroup(), member, g, make(chan error, 2000)}
}

// update begins a transaction in the group.
func (h *groupHead) update(t *testing.T, fn func(tx *store.Tx) error) {
	t.Helper()
	go func() {
		_, err := h.group.Update(t.Context(), fn)
		h.errs <- err
	}()
}

// hold begins a transaction, which waits at the gate: further ones are the next group.
func (h *groupHead) hold(t *testing.T) {
	t.Helper()
	h.update(t, h.create("first"))
	eventually(t, func() error {
		if h.gate.sent.Load() == 0 {
			return errors.New("nothing was sent")
		}
		return nil
	})
}

func (h *groupHead) create(name string) func(tx *store.Tx) error {
	return func(tx *store.Tx) error { return h.machines.In(tx).Create(machine(name, name)) }
}

// waiting returns when n transactions wait for the next group.
func (h *groupHead) waiting(t *testing.T, n int) {
	t.Helper()
	eventually(t, func() error {
		if got := h.group.Waiting(); got != n {
			return fmt.Errorf("%d transactions wait; want %d", got, n)
		}
		return nil
	})
}

// results opens the gate and returns the errors of n transactions.
func (h *groupHead) results(t *testing.T, n int) (failed []error) {
	t.Helper()
	close(h.gate.open)
	for range n {
		if err := <-h.errs; err != nil {
			failed = append(failed, err)
		}
	}
	return failed
}

// Transactions that wait together are sent as one, at one revision, and none returns before it is committed.
func TestGroupIsOneTransaction(t *testing.T) {
	t.Parallel()
	h := newGroupHead(t, store.Options{})
	h.hold(t)
	const others = 50
	for i := range others {
		h.update(t, h.create(fmt.Sprint("m", i)))
	}
	h.waiting(t, others)
	if len(h.errs) > 0 || h.machines.Len() > 0 {
		t.Fatalf("%d transactions returned before the first was committed", len(h.errs))
	}
	if failed := h.results(t, others+1); failed != nil {
		t.Fatal(failed)
	}
	if got := h.gate.sent.Load(); got != 2 {
		t.Errorf("%d transactions were sent; want 2", got)
	}
	var revisions []int64
	for m := range h.machines.AllShared() {
		revisions = append(revisions, m.Revision)
	}
	slices.Sort(revisions)
	if n := len(slices.Compact(revisions)); n != 2 {
		t.Errorf("the records have %d revisions; want 2", n)
	}
}

// One transaction of a group loses its race: it alone runs again, and the others are committed.
func TestGroupUnderConflict(t *testing.T) {
	t.Parallel()
	h := newGroupHead(t, store.Options{})
	h.hold(t)
	var runs sync.Map
	count := func(name string, fn func(tx *store.Tx) error) func(tx *store.Tx) error {
		n := new(atomic.Int64)
		runs.Store(name, n)
		return func(tx *store.Tx) error { n.Add(1); return fn(tx) }
	}
	for i := range 20 {
		name := fmt.Sprint("m", i)
		h.update(t, count(name, h.create(name)))
	}
	h.waiting(t, 20)
	other := open(t, h.member, store.Options{Head: "other"})
	other.must(t, func(tx *store.Tx) error { return other.machines.In(tx).Create(machine("m7", "")) })
	failed := h.results(t, 21)
	if len(failed) != 1 || !errors.Is(failed[0], trivet.ErrExists) {
		t.Errorf("failed: %v; want that m7 exists, and no other", failed)
	}
	runs.Range(func(name, n any) bool {
		want := int64(1)
		if name == "m7" {
			want = 2
		}
		if got := n.(*atomic.Int64).Load(); got != want {
			t.Errorf("%s ran %d times; want %d", name, got, want)
		}
		return true
	})
	if h.machines.Len() != 21 {
		t.Errorf("there are %d machines; want 21", h.machines.Len())
	}
}

// An attempt without a response lets no transaction run again that waits to be sent.
func TestGroupAfterLostResponse(t *testing.T) {
	t.Parallel()
	h := newGroupHead(t, store.Options{})
	h.hold(t)
	const others = 200
	var runs atomic.Int64
	for i := range others {
		create := h.create(fmt.Sprint("m", i))
		h.update(t, func(tx *store.Tx) error { runs.Add(1); return create(tx) })
	}
	h.waiting(t, others)
	before := h.Guard()
	close(h.gate.lose)
	eventually(t, func() error {
		if h.Guard() == before {
			return errors.New("the guard was not written")
		}
		return nil
	})
	if failed := h.results(t, others+1); failed != nil {
		t.Fatal(failed)
	}
	if h.machines.Len() != others+1 {
		t.Errorf("there are %d machines; want %d", h.machines.Len(), others+1)
	}
	// The second group was sent before the guard was written; each of its transactions has two operations or more.
	if got, most := runs.Load(), int64(others+store.MaxOps/2); got > most {
		t.Errorf("%d transactions ran %d times; want at most %d", others, got, most)
	}
}

// holdAdditions begins transactions that each add a machine to the list of one rack, and wait behind one that is held.
func (h *groupHead) holdAdditions(t *testing.T, n int) {
	t.Helper()
	h.hold(t)
	for i := range n {
		h.update(t, func(tx *store.Tx) error { return h.machines.In(tx).Create(machine(fmt.Sprint("m", i), "r1")) })
	}
}

// Transactions that add to one list share a group, which marks the list as changed for all.
func TestGroupOfOneList(t *testing.T) {
	t.Parallel()
	h := newGroupHead(t, store.Options{})
	const others = 20
	h.holdAdditions(t, others)
	h.waiting(t, others)
	if failed := h.results(t, others+1); failed != nil {
		t.Fatal(failed)
	}
	if got := h.gate.sent.Load(); got != 2 {
		t.Errorf("%d transactions were sent; want 2", got)
	}
	if n := len(h.machines.ListBy("rack", "r1")); n != others {
		t.Errorf("the list has %d records; want %d", n, others)
	}
}

// One transaction of a group that adds to one list loses its race: the others are committed, one after the other.
func TestGroupOfOneListUnderConflict(t *testing.T) {
	t.Parallel()
	h := newGroupHead(t, store.Options{})
	const others = 20
	h.holdAdditions(t, others)
	h.update(t, h.create("elsewhere")) // another list
	h.waiting(t, others+1)
	other := open(t, h.member, store.Options{Head: "other"})
	other.must(t, func(tx *store.Tx) error { return other.machines.In(tx).Create(machine("m7", "r2")) })
	if failed := h.results(t, others+2); len(failed) != 1 || !errors.Is(failed[0], trivet.ErrExists) {
		t.Errorf("failed: %v; want that m7 exists, and no other", failed)
	}
	if n := len(h.machines.ListBy("rack", "r1")); n != others-1 {
		t.Errorf("the list has %d records; want %d", n, others-1)
	}
}

// A decision on a list does not share a group with an addition to it, in either order of arrival.
func TestGroupWithDecisionOnItsList(t *testing.T) {
	t.Parallel()
	h := newGroupHead(t, store.Options{})
	h.hold(t)
	const most, all = 3, 12
	errFull := errors.New("full")
	for i := range all {
		h.update(t, func(tx *store.Tx) error {
			if i%2 == 0 && len(h.machines.In(tx).ListBy("rack", "r1")) >= most {
				return errFull
			}
			rack := "r1"
			if i%2 == 1 {
				rack = "r2"
			}
			return h.machines.In(tx).Create(machine(fmt.Sprint("m", i), rack))
		})
	}
	h.waiting(t, all)
	failed := h.results(t, all+1)
	for _, err := range failed {
		if !errors.Is(err, errFull) {
			t.Error(err)
		}
	}
	if n, others := len(h.machines.ListBy("rack", "r1")), len(h.machines.ListBy("rack", "r2")); n != most ||
		others != all/2 || len(failed) != all/2-most {
		t.Errorf("%d in the list that is decided on, %d in the other, %d refused", n, others, len(failed))
	}
}

// Transactions that write one record do not share a group: each sees the one before.
func TestGroupWithOneRecord(t *testing.T) {
	t.Parallel()
	h := newGroupHead(t, store.Options{})
	h.hold(t)
	const all = 10
	for range all {
		h.update(t, func(tx *store.Tx) error {
			m, err := h.machines.In(tx).Get("counter")
			if errors.Is(err, trivet.ErrNotFound) {
				m, err = machine("counter", ""), nil
			}
			m.Status.Epoch++
			return errors.Join(err, h.machines.In(tx).Put(m))
		})
	}
	h.waiting(t, all)
	if failed := h.results(t, all+1); failed != nil {
		t.Fatal(failed)
	}
	if m, err := h.machines.Get("counter"); err != nil || m.Status.Epoch != all {
		t.Errorf("%d increments: %+v, %v", all, m, err)
	}
}

// Two transactions each write a record unless the other's is there. In one group neither would see the other's.
func TestGroupWithReadsOfOthers(t *testing.T) {
	t.Parallel()
	h := newGroupHead(t, store.Options{})
	h.hold(t)
	unless := func(theirs, mine string) func(tx *store.Tx) error {
		return func(tx *store.Tx) error {
			if _, err := h.machines.In(tx).Get(theirs); err == nil {
				return nil
			}
			return h.machines.In(tx).Create(machine(mine, mine))
		}
	}
	h.update(t, unless("a", "b"))
	h.update(t, unless("b", "a"))
	h.waiting(t, 2)
	if failed := h.results(t, 3); failed != nil {
		t.Fatal(failed)
	}
	if names := h.machines.Names(); len(names) != 2 {
		t.Errorf("there are %v; want the first, and one of a and b", names)
	}
}

// The response to a group is lost: each of its transactions finds its own outcome, and none is committed twice.
func TestGroupWithUnknownOutcome(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(*faults) func(){
		"the response is lost": func(f *faults) func() { f.loseResponses(1); return func() {} },
		"it arrives late":      func(f *faults) func() { return f.hold() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			link := newFaults(storetest.Member(t).Client(), 1)
			h := open(t, link.client(), store.Options{Timeout: time.Minute})
			group := h.NewGroup()
			h.must(t, func(tx *store.Tx) error { return h.machines.In(tx).Create(machine("m0", "")) })
			late := lose(link)
			var callers sync.WaitGroup
			for i := range 30 {
				callers.Go(func() {
					if _, err := group.Update(t.Context(), func(tx *store.Tx) error {
						return h.count(tx, "m0")
					}); err != nil {
						t.Error(err)
					}
					if _, err := group.Update(t.Context(), func(tx *store.Tx) error {
						return h.machines.In(tx).Create(machine(fmt.Sprint("n", i), ""))
					}); err != nil {
						t.Error(err)
					}
				})
			}
			callers.Wait()
			late()
			if err := h.Sync(t.Context()); err != nil {
				t.Fatal(err)
			}
			if m, err := h.machines.Get("m0"); err != nil || m.Status.Epoch != 30 || h.machines.Len() != 31 {
				t.Errorf("after 30 increments and creations: %+v, %v, %d records", m, err, h.machines.Len())
			}
		})
	}
}

// A transaction that the quota refuses is refused alone.
func TestGroupWithRefused(t *testing.T) {
	t.Parallel()
	full := fmt.Errorf("%w: full", trivet.ErrUnavailable)
	h := newGroupHead(t, store.Options{Admit: func(_ int, growth int64) error {
		if growth > 1000 {
			return full
		}
		return nil
	}})
	h.hold(t)
	h.update(t, h.create("small"))
	h.update(t, func(tx *store.Tx) error {
		m := machine("large", "")
		m.Labels = map[string]string{}
		for i := range 60 {
			m.Labels[fmt.Sprint("label", i)] = "0123456789"
		}
		return h.machines.In(tx).Create(m)
	})
	h.waiting(t, 1)
	if err := <-h.errs; !errors.Is(err, full) {
		t.Errorf("the large one: %v", err)
	}
	if failed := h.results(t, 2); failed != nil {
		t.Error(failed)
	}
	if _, err := h.machines.Get("small"); err != nil {
		t.Error(err)
	}
}

// While others end, a transaction that waits for too long is refused as the store is overloaded.
func TestGroupIsOverloaded(t *testing.T) {
	t.Parallel()
	h := newGroupHead(t, store.Options{})
	begun, end := make(chan struct{}), make(chan struct{})
	failed := errors.New("failed")
	blocked := func(*store.Tx) error { begun <- struct{}{}; <-end; return failed }
	for range store.InProgress + 2 {
		h.update(t, blocked)
	}
	for range store.InProgress {
		<-begun
	}
	eventually(t, func() error {
		if n := h.Waiting(); n != 2 {
			return fmt.Errorf("%v transactions wait to begin", n)
		}
		return nil
	})
	end <- struct{}{} // of the two that wait, one takes its place
	<-begun
	if err := <-h.errs; !errors.Is(err, failed) {
		t.Errorf("the one that ended: %v", err)
	}
	if err := <-h.errs; !errors.Is(err, store.ErrOverloaded) || !errors.Is(err, trivet.ErrUnavailable) {
		t.Errorf("the one that waits: %v", err)
	}
	close(end)
	for range store.InProgress {
		if err := <-h.errs; !errors.Is(err, failed) {
			t.Error(err)
		}
	}
}

// A group has the bounds of a transaction, and what waits is bounded, too. What ended before it was sent is not
// committed, and known not to be.
func TestGroupIsBounded(t *testing.T) {
	t.Parallel()
	h := newGroupHead(t, store.Options{})
	h.hold(t)
	ended, cancel := context.WithCancel(t.Context())
	gone := make(chan error)
	go func() {
		_, err := h.group.Update(ended, h.create("gone"))
		gone <- err
	}()
	h.waiting(t, 1)
	cancel()
	if err := <-gone; !errors.Is(err, trivet.ErrUnavailable) || errors.Is(err, trivet.ErrUnknown) {
		t.Errorf("ended before it was sent: %v", err)
	}
	h.group.LimitBytes(0)
	h.update(t, h.create("alone"))
	h.waiting(t, 1) // which may be larger than all may
	if _, err := h.group.Update(t.Context(), h.create("more")); !errors.Is(err, trivet.ErrUnavailable) {
		t.Errorf("more bytes than may wait: %v", err)
	}
	h.group.LimitBytes(store.MaxWaitingBytes)
	for i := range store.InProgress - 2 { // the first one is sent
		h.update(t, h.create(fmt.Sprint("m", i)))
	}
	h.waiting(t, store.InProgress-1)
	never := func(*store.Tx) error { t.Error("one more than may be in progress has begun"); return nil }
	if _, err := h.group.Update(t.Context(), never); !errors.Is(err, trivet.ErrUnavailable) ||
		errors.Is(err, store.ErrOverloaded) {
		t.Errorf("one more than may be in progress, none of which ends: %v", err)
	}
	ended, cancel = context.WithCancel(t.Context())
	cancel()
	if _, err := h.group.Update(ended, never); !errors.Is(err, trivet.ErrUnavailable) || errors.Is(err, trivet.ErrUnknown) {
		t.Errorf("ended while it waited: %v", err)
	}
	later := make(chan error)
	go func() {
		_, err := h.group.Update(t.Context(), h.create("later"))
		later <- err
	}()
	if failed := h.results(t, store.InProgress); failed != nil {
		t.Fatal(failed)
	}
	if err := <-later; err != nil {
		t.Errorf("one that waited: %v", err)
	}
	if h.machines.Len() != store.InProgress+1 {
		t.Errorf("there are %d machines", h.machines.Len())
	}
	// Each writes two keys: a record, and that of a list.
	if got, least := h.gate.sent.Load(), int64(2*store.InProgress/store.MaxOps); got < least || got > 2*least {
		t.Errorf("%d groups of at most %d operations were sent", got, store.MaxOps)
	}
}
