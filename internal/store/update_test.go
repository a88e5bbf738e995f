package store_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/storetest"
)

// A write that was delayed in the network is fenced before the function runs again: when it arrives, it has no effect.
func TestLateWriteIsFenced(t *testing.T) {
	t.Parallel()
	m := storetest.Member(t)
	link := newFaults(m.Client(), 1)
	h := open(t, link.client(), store.Options{})
	release := link.hold()
	runs, changed := 0, errors.New("changed")
	_, err := h.Update(t.Context(), func(tx *store.Tx) error {
		if runs++; runs > 1 {
			return changed
		}
		return h.machines.In(tx).Create(machine("m1", ""))
	})
	release()
	if !errors.Is(err, changed) || runs != 2 {
		t.Errorf("%v after %d runs", err, runs)
	}
	if err := h.Sync(t.Context()); err != nil || h.machines.Len() != 0 {
		t.Errorf("the late write created %d machines, %v", h.machines.Len(), err)
	}
}

// The error of a write states what is known of its outcome.
func TestUnknownIsNotUnavailable(t *testing.T) {
	t.Parallel()
	m := storetest.Member(t)
	link := newFaults(m.Client(), 1)
	var leaderless error
	h := open(t, link.client(), store.Options{
		AttemptTimeout: 50 * time.Millisecond, Timeout: 200 * time.Millisecond,
		Term: func(context.Context) (<-chan struct{}, error) { return nil, leaderless },
	})
	create := func(tx *store.Tx) error { return h.machines.In(tx).Create(machine("m1", "")) }
	link.cut(true)
	_, err := h.Update(t.Context(), create)
	if !errors.Is(err, trivet.ErrUnknown) || errors.Is(err, trivet.ErrUnavailable) {
		t.Errorf("sent, without a response: %v", err)
	}
	mine := errors.New("mine")
	_, err = h.Update(t.Context(), func(tx *store.Tx) error { _, _ = h.machines.In(tx).Get("m1"); return mine })
	if !errors.Is(err, trivet.ErrUnavailable) || errors.Is(err, mine) || !strings.Contains(err.Error(), "mine") {
		t.Errorf("an error that no quorum confirmed: %v", err)
	}
	leaderless = fmt.Errorf("%w: no leader", trivet.ErrUnavailable)
	_, err = h.Update(t.Context(), create)
	if !errors.Is(err, trivet.ErrUnavailable) || errors.Is(err, trivet.ErrUnknown) {
		t.Errorf("not sent, without a leader: %v", err)
	}
	if err := h.Sync(t.Context()); !errors.Is(err, trivet.ErrUnavailable) {
		t.Errorf("a sync without a leader: %v", err)
	}
	leaderless = nil
	link.cut(false)
	long, cancelLong := context.WithTimeout(t.Context(), 15*time.Second) // a commit may take more than 200 ms
	defer cancelLong()
	_, err = h.Update(long, func(tx *store.Tx) error { return h.machines.In(tx).Put(machine("m1", "")) })
	if err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := h.Update(ended, create); !errors.Is(err, trivet.ErrUnavailable) {
		t.Errorf("after the end of the caller's context: %v", err)
	}
}

// The outcome of a write without a response from one leader is resolved with the next one, whatever the timeout.
func TestNextLeaderResolvesOutcome(t *testing.T) {
	t.Parallel()
	m := storetest.Member(t)
	link := newFaults(m.Client(), 1)
	terms := make(chan chan struct{})
	h := open(t, link.client(), store.Options{
		AttemptTimeout: time.Minute, Timeout: time.Minute,
		Term: func(context.Context) (<-chan struct{}, error) { return <-terms, nil },
	})
	link.cut(true)
	done := make(chan error)
	go func() {
		_, err := h.Update(t.Context(), func(tx *store.Tx) error { return h.machines.In(tx).Create(machine("m1", "")) })
		done <- err
	}()
	first, second := make(chan struct{}), make(chan struct{})
	terms <- first
	close(first)
	select {
	case terms <- second: // to resolve the outcome
	case <-time.After(30 * time.Second):
		t.Fatal("the store still waits for the first leader")
	}
	link.cut(false)
	terms <- second // to write again
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// If a response is lost and the store is available, the outcome is resolved.
func TestLostResponseIsResolved(t *testing.T) {
	t.Parallel()
	m := storetest.Member(t)
	link := newFaults(m.Client(), 1)
	h := open(t, link.client(), store.Options{})
	link.loseResponses(1)
	runs := 0
	rev := h.must(t, func(tx *store.Tx) error {
		runs++
		return h.machines.In(tx).Create(machine("m1", ""))
	})
	if got, err := h.machines.Get("m1"); err != nil || got.Revision != rev || runs != 1 {
		t.Errorf("%+v, %v after %d runs, committed at %d", got, err, runs, rev)
	}
	link.loseResponses(1)
	h.must(t, func(tx *store.Tx) error { return h.machines.In(tx).Delete("m1") })
	if h.machines.Len() != 0 {
		t.Error("the deletion was lost")
	}
}

// slowKV returns the response of no transaction, and blocks all other writes.
type slowKV struct{ clientv3.KV }

func (k slowKV) Txn(ctx context.Context) clientv3.Txn { return slowTxn{k.KV.Txn(ctx)} }

func (slowKV) Put(ctx context.Context, _, _ string, _ ...clientv3.OpOption) (*clientv3.PutResponse, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

type slowTxn struct{ clientv3.Txn }

func (t slowTxn) If(cs ...clientv3.Cmp) clientv3.Txn   { return slowTxn{t.Txn.If(cs...)} }
func (t slowTxn) Then(ops ...clientv3.Op) clientv3.Txn { return slowTxn{t.Txn.Then(ops...)} }

func (t slowTxn) Commit() (*clientv3.TxnResponse, error) {
	_, err := t.Txn.Commit()
	return nil, errors.Join(errLost, err)
}

// A write that is in the feed is known to be committed, whatever else has no response: a slow disk does not make an
// outcome unknown that arrives within the caller's deadline.
func TestLateResponseIsSeen(t *testing.T) {
	t.Parallel()
	m := storetest.Member(t)
	slow := clientv3.NewCtxClient(t.Context())
	slow.KV, slow.Watcher = slowKV{m.Client().KV}, m.Client().Watcher
	h := open(t, slow, store.Options{AttemptTimeout: time.Hour, Timeout: time.Hour})
	rev := h.must(t, func(tx *store.Tx) error { return h.machines.In(tx).Create(machine("m1", "")) })
	if got, err := h.machines.Get("m1"); err != nil || got.Revision != rev {
		t.Errorf("%+v, %v, committed at %d", got, err, rev)
	}
}

// An index that a table does not have is a defect of the program, which an empty result would hide.
func TestUnknownIndexPanics(t *testing.T) {
	t.Parallel()
	h := open(t, storetest.Member(t).Client(), store.Options{})
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	h.machines.SharedBy("nope", "x")
}
