package store_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/keyring"
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

// thing is a kind that a release has, and laterThing the same kind of a later one, with a field of another type.
type thing struct {
	trivet.Meta
	Spec struct {
		Area string `json:"area"`
	} `json:"spec"`
}

type laterThing struct {
	trivet.Meta
	Spec struct {
		Area []string `json:"area"`
	} `json:"spec"`
}

func (*thing) Validate() error      { return nil }
func (*laterThing) Validate() error { return nil }

// A record whose spec cannot be decoded by this release is shown as it is stored.
func TestSpecThatCannotBeDecodedIsShown(t *testing.T) {
	t.Parallel()
	m := storetest.Member(t)
	kind := trivet.KindInfo{Kind: "Thing", SpecApart: "0.2", New: func() trivet.Record { return &laterThing{} }}
	later := newHead(m.Client(), store.Options{Head: "b"})
	later.Register(kind)
	_, sites := startApart(t, later)
	later.reach(t, sites, "0.2")
	later.must(t, func(tx *store.Tx) error {
		return tx.PutRaw("Thing", "t1", []byte(`{"spec":{"area":["here","there"]}}`))
	})
	kind.New = func() trivet.Record { return &thing{} }
	h := newHead(m.Client(), store.Options{Head: "a"})
	h.Register(kind)
	startApart(t, h)
	raw, err := h.Get("Thing", "t1")
	if err != nil || raw.Record() != nil || !strings.Contains(string(raw.JSON()), `"there"`) {
		t.Errorf("%s, %v", raw.JSON(), err)
	}
}

// A head that gets a key late reads records that are written from then on, also those whose spec was written before.
func TestSpecIsReadWhenItsKeyComes(t *testing.T) {
	t.Parallel()
	m := storetest.Member(t)
	old, next := keyring.New(), keyring.New()
	h, sites := openApart(t, m, store.Options{Head: "a", Cipher: keyring.NewCipher(keyring.Of(old, next))})
	h.reach(t, sites, "0.2")
	late := keyring.NewCipher(keyring.Of(old))
	other, _ := openApart(t, m, store.Options{Head: "b", Cipher: late})
	h.must(t, func(tx *store.Tx) error { return tx.SetActive(next.ID()) })
	h.put(t, "m1", "r1")
	h.Sync(t.Context())
	if _, err := other.synced(t).machines.Get("m1"); !errors.Is(err, store.ErrRefused) {
		t.Fatalf("without the key: %v", err)
	}
	late.Use(keyring.Of(old, next))
	h.setPower(t, "m1", "on")
	if got, err := other.synced(t).machines.Get("m1"); err != nil || got.Spec.Rack != "r1" {
		t.Errorf("with the key: %+v, %v", got, err)
	}
}

// A head that holds a whole record writes its spec again, with the status, where that was deleted or damaged.
func TestStatusWriteRestoresTheSpec(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(w *witness){
		"deleted": func(w *witness) { w.delete(machineSpecs + "m1") },
		"damaged": func(w *witness) { w.put(machineSpecs+"m1", "x") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := storetest.Member(t)
			h, sites := openApart(t, m, store.Options{Head: "a"})
			h.reach(t, sites, "0.2")
			h.put(t, "m1", "r1")
			damage(&witness{t, m.Client()})
			h.synced(t).setPower(t, "m1", "on")
			other, _ := openApart(t, m, store.Options{Head: "b"})
			for _, h := range []*head{h, other} {
				if got, err := h.machines.Get("m1"); err != nil || got.Spec.Rack != "r1" || got.Status.Power != "on" {
					t.Errorf("%+v, %v", got, err)
				}
			}
		})
	}
}
