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
	"github.com/trivet-project/trivet/internal/cluster"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/storetest"
)

// A write that was lost on its way is given up before the function is run again: when it arrives at last it does nothing.
func TestLateWriteIsShutOut(t *testing.T) {
	t.Parallel()
	m := storetest.Member(t)
	line := newFaults(m.Client(), 1)
	h := open(t, line.client(), store.Options{})
	letGo := line.hold()
	runs, changed := 0, errors.New("changed my mind")
	_, err := h.Update(t.Context(), func(tx *store.Tx) error {
		if runs++; runs > 1 {
			return changed
		}
		return h.machines.In(tx).Create(machine("m1", ""))
	})
	letGo()
	if !errors.Is(err, changed) || runs != 2 {
		t.Errorf("%v after %d runs", err, runs)
	}
	if err := h.Sync(t.Context()); err != nil || h.machines.Len() != 0 {
		t.Errorf("the lost write made %d machines, %v", h.machines.Len(), err)
	}
}

// What is told to the caller is what is known of the write.
func TestUnknownIsNotUnavailable(t *testing.T) {
	t.Parallel()
	m := storetest.Member(t)
	line := newFaults(m.Client(), 1)
	var leaderless error
	h := open(t, line.client(), store.Options{
		AttemptTimeout: 50 * time.Millisecond, Timeout: 200 * time.Millisecond,
		Term: func(context.Context) (<-chan struct{}, error) { return nil, leaderless },
	})
	create := func(tx *store.Tx) error { return h.machines.In(tx).Create(machine("m1", "")) }
	line.cut(true)
	if _, err := h.Update(t.Context(), create); !errors.Is(err, trivet.ErrUnknown) || errors.Is(err, trivet.ErrUnavailable) {
		t.Errorf("sent, and never answered: %v", err)
	}
	mine := errors.New("mine")
	_, err := h.Update(t.Context(), func(tx *store.Tx) error { _, _ = h.machines.In(tx).Get("m1"); return mine })
	if !errors.Is(err, trivet.ErrUnavailable) || errors.Is(err, mine) || !strings.Contains(err.Error(), "mine") {
		t.Errorf("an error that no quorum confirmed: %v", err)
	}
	leaderless = fmt.Errorf("%w: no leader", trivet.ErrUnavailable)
	if _, err := h.Update(t.Context(), create); !errors.Is(err, trivet.ErrUnavailable) || errors.Is(err, trivet.ErrUnknown) {
		t.Errorf("not sent, for want of a leader: %v", err)
	}
	if err := h.Sync(t.Context()); !errors.Is(err, trivet.ErrUnavailable) {
		t.Errorf("a fresh read without a leader: %v", err)
	}
	leaderless = nil
	line.cut(false)
	h.must(t, func(tx *store.Tx) error { return h.machines.In(tx).Put(machine("m1", "")) })
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := h.Update(ended, create); !errors.Is(err, trivet.ErrUnavailable) {
		t.Errorf("the caller's time was over: %v", err)
	}
}

// The outcome of a write that one leader did not answer is resolved with the next one, whatever the timeout.
func TestTheNextLeaderIsAsked(t *testing.T) {
	t.Parallel()
	m := storetest.Member(t)
	line := newFaults(m.Client(), 1)
	terms := make(chan chan struct{})
	h := open(t, line.client(), store.Options{
		AttemptTimeout: time.Minute, Timeout: time.Minute,
		Term: func(context.Context) (<-chan struct{}, error) { return <-terms, nil },
	})
	line.cut(true)
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
		t.Fatal("the first leader is waited for")
	}
	line.cut(false)
	terms <- second // to write again
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// Without an answer, but with a store that serves, the outcome is resolved.
func TestLostAnswerIsLearned(t *testing.T) {
	t.Parallel()
	m := storetest.Member(t)
	line := newFaults(m.Client(), 1)
	h := open(t, line.client(), store.Options{})
	line.loseAnswers(1)
	runs := 0
	rev := h.must(t, func(tx *store.Tx) error {
		runs++
		return h.machines.In(tx).Create(machine("m1", ""))
	})
	if got, err := h.machines.Get("m1"); err != nil || got.Revision != rev || runs != 1 {
		t.Errorf("%+v, %v after %d runs, committed at %d", got, err, runs, rev)
	}
	line.loseAnswers(1)
	h.must(t, func(tx *store.Tx) error { return h.machines.In(tx).Delete("m1") })
	if h.machines.Len() != 0 {
		t.Error("the deletion was lost")
	}
}

// slowKV answers no transaction in time, and lets no other write through.
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

// A write that is in the feed is known, whatever else the store does not answer: a slow disk makes no outcome unknown that
// came within the caller's time.
func TestLateAnswerIsSeen(t *testing.T) {
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

func TestFullStore(t *testing.T) {
	t.Parallel()
	var err error
	h := open(t, storetest.MemberWith(t, cluster.Config{QuotaBytes: 2 << 20}).Client(), store.Options{})
	big := machine("m1", "")
	for i := 0; err == nil; i++ {
		big.Labels = map[string]string{"x": strings.Repeat(fmt.Sprint(i%10), 60)}
		big.Status.Reason = strings.Repeat(fmt.Sprint(i%10), 400<<10)
		_, err = h.Update(t.Context(), func(tx *store.Tx) error { return h.machines.In(tx).Put(big) })
	}
	var said *trivet.Error
	if !errors.Is(err, trivet.ErrUnavailable) || !errors.As(err, &said) || !strings.Contains(said.Hint, "quota") {
		t.Errorf("a full store: %v", err)
	}
	if _, err := h.machines.Get("m1"); err != nil {
		t.Errorf("what is there cannot be read: %v", err)
	}
}

// An index that a table does not have is a mistake of the program, which an empty answer would hide.
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
