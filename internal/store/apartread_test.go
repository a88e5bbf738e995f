package store_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/storetest"
)

// The size of a record has its spec, since readers that bound what they hold and send go by it.
func TestSizeHasTheSpec(t *testing.T) {
	t.Parallel()
	h, sites := openApart(t, storetest.Member(t), store.Options{Head: "a"})
	h.reach(t, sites, "0.2")
	h.put(t, "m1", longText())
	raw, err := h.Get("Machine", "m1")
	if err != nil || raw.Bytes() < 1000 || raw.Bytes() > len(raw.JSON()) {
		t.Errorf("%d bytes of %d, %v", raw.Bytes(), len(raw.JSON()), err)
	}
}

// A resumed watch waits for a member that has sent a revision and cannot be read at it yet.
func TestReplayReadsSpecsWhenTheMemberHasThem(t *testing.T) {
	t.Parallel()
	m := storetest.Member(t)
	client := clientv3.NewCtxClient(context.Background())
	kv := &lateKV{KV: m.Client().KV, prefix: machineSpecs}
	client.KV, client.Watcher = kv, m.Client().Watcher
	h, sites := startApart(t, newHead(client, store.Options{Head: "a"}))
	h.reach(t, sites, "0.2")
	begin := h.put(t, "m1", "r1")
	h.put(t, "m1", "r2")
	h.put(t, "m1", "r3")
	h.ForgetHistory()
	kv.late = 2
	if events, err := h.Watch(begin, "Machine").Next(t.Context()); err != nil || len(events) != 2 {
		t.Errorf("%d events, %v", len(events), err)
	}
	if kv.refused != 2 {
		t.Errorf("%d reads were refused", kv.refused)
	}
}

// What a resumed watch reads is bounded with the specs, which it reads for each of the changes.
func TestReplayCountsSpecs(t *testing.T) {
	t.Parallel()
	h, sites := openApart(t, storetest.Member(t), store.Options{Head: "a"})
	h.reach(t, sites, "0.2")
	begin := h.put(t, "m1", longText())
	for i := range 30 {
		h.setPower(t, "m1", fmt.Sprint("p", i))
	}
	h.put(t, "m1", "r2") // the copy has the former spec no more
	h.ForgetHistory()
	h.LimitReplay(1000, 40_000)
	w := h.Watch(begin, "Machine")
	w.Rewind(begin, 1) // one revision at once
	for got := 0; ; got++ {
		if _, err := w.Next(t.Context()); errors.Is(err, trivet.ErrCompacted) {
			return
		} else if err != nil || got == 30 {
			t.Fatalf("after %d changes with 2,000 bytes each: %v", got, err)
		}
	}
}
