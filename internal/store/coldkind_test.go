package store_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/keyring"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/storetest"
)

// archive is a head with a table of a cold kind.
type archive struct {
	*head
	events *store.ColdTable[trivet.Event]
}

func openArchive(t testing.TB, client *clientv3.Client, opts store.Options) *archive {
	t.Helper()
	h := newHead(client, opts)
	a := &archive{h, store.NewColdTable[trivet.Event](h.Store, func(func(string) string) string { return "" })}
	if err := h.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	return a
}

func event(uid string, seq int64) *trivet.Event {
	return &trivet.Event{Meta: trivet.Meta{Name: trivet.EventName(uid, seq)}, Spec: trivet.EventSpec{
		Subject: "machine/" + uid, SubjectUID: uid, Seq: seq, Reason: trivet.ReasonClaimed}}
}

// happen writes events of a machine from one number to another, each in a transaction, and returns their revisions.
func (a *archive) happen(t testing.TB, uid string, from, to int64) (revisions []int64) {
	t.Helper()
	for seq := from; seq <= to; seq++ {
		revisions = append(revisions, a.must(t, func(tx *store.Tx) error { return a.events.In(tx).Put(event(uid, seq)) }))
	}
	return revisions
}

// all returns the numbers of the events under a prefix, which are read in pages of a size.
func (a *archive) all(t testing.TB, prefix string, size int) (numbers []int64) {
	t.Helper()
	for after, more := "", true; more; {
		page, err := a.events.Under(t.Context(), prefix, after, size)
		if err != nil || len(page) > size && size > 0 {
			t.Fatal(len(page), err)
		}
		for _, e := range page {
			numbers, after = append(numbers, e.Spec.Seq), e.Name
		}
		more = len(page) == size && size > 0
	}
	return numbers
}

// stored returns the keys of cold kinds.
func stored(t testing.TB, client *clientv3.Client) (keys []string) {
	t.Helper()
	found, err := client.Get(t.Context(), "/trivet-history/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range found.Kvs {
		keys = append(keys, string(kv.Key))
	}
	return keys
}

func numbers(from, to int64) (all []int64) {
	for ; from <= to; from++ {
		all = append(all, from)
	}
	return all
}

// No head has the records of a cold kind in its copy, neither one that wrote them nor one that starts. They are read
// with the revisions of their changes, one by one and in pages. Sixteen of them use one key, and so do the first eight of
// those.
func TestColdRecordsAreInNoCopy(t *testing.T) {
	t.Parallel()
	m, metrics := storetest.Member(t), prometheus.NewRegistry()
	a := openArchive(t, m.Client(), store.Options{Metrics: metrics})
	revisions := a.happen(t, "u", 0, 44)
	a.happen(t, "u2", 0, 2)
	if keys := stored(t, m.Client()); len(keys) != 3+5+3 {
		t.Errorf("%d keys: %v", len(keys), keys)
	}
	for name, h := range map[string]*archive{"writer": a, "started": openArchive(t, m.Client(), store.Options{})} {
		if list, _ := h.List("Event", "", "", 0); len(list) != 0 {
			t.Errorf("%s: %d records are in the copy", name, len(list))
		}
		for seq, revision := range revisions {
			e, err := h.events.Get(t.Context(), trivet.EventName("u", int64(seq)))
			if err != nil || e.Spec.Seq != int64(seq) || e.Revision != revision || e.Generation != 1 || e.Kind != "Event" {
				t.Fatalf("%s: %+v, %v; want number %d of revision %d", name, e, err, seq, revision)
			}
		}
		for _, size := range []int{0, 1, 7, 16, 100} {
			if got := h.all(t, "machine.u.", size); !slices.Equal(got, numbers(0, 44)) {
				t.Errorf("%s: pages of %d: %v", name, size, got)
			}
		}
		if n := len(h.all(t, "", 3)); n != 45+3 {
			t.Errorf("%s: %d of all", name, n)
		}
		if _, err := h.events.Get(t.Context(), "machine.u.ff"); !errors.Is(err, trivet.ErrNotFound) {
			t.Errorf("%s: %v", name, err)
		}
	}
	families, err := metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, metric := range f.GetMetric() {
			if f.GetName() == "trivet_store_records" && strings.Contains(metric.String(), "Event") {
				t.Errorf("counted in the copy: %v", metric)
			}
		}
	}
}

// A subject whose events are overwritten keeps its newest ones, however many there are, and others keep theirs.
func TestColdRecordsAreOverwritten(t *testing.T) {
	t.Parallel()
	m := storetest.Member(t)
	a := openArchive(t, m.Client(), store.Options{})
	a.happen(t, "quiet", 0, 20)
	const last = 2*trivet.EventsPerSubject + 40
	a.happen(t, "loud", 0, last)
	got := a.all(t, "machine.loud.", 50)
	slices.Sort(got)
	if want := numbers(last-trivet.EventsPerSubject+1, last); !slices.Equal(got, want) {
		t.Errorf("%d events are kept, want %d to %d: %v", len(got), want[0], last, got)
	}
	if got := a.all(t, "machine.quiet.", 0); !slices.Equal(got, numbers(0, 20)) {
		t.Errorf("of the other subject: %v", got)
	}
	if keys := stored(t, m.Client()); len(keys) > 16+15+1+5 {
		t.Errorf("%d keys: %v", len(keys), keys)
	}
	e, err := a.events.Get(t.Context(), trivet.EventName("loud", last))
	if err != nil || e.Generation != 3 {
		t.Errorf("%+v, %v", e, err)
	}
}

// What a transaction reads of a cold kind is compared as all else is, whether it has a key of its own or is in its
// page's, or does not exist.
func TestColdReadsAreCompared(t *testing.T) {
	t.Parallel()
	for _, there := range []int64{0, 5, 15} { // events before
		m := storetest.Member(t)
		near, far := openArchive(t, m.Client(), store.Options{Head: "head0"}),
			openArchive(t, m.Client(), store.Options{Head: "head1"})
		near.happen(t, "u", 0, there)
		for _, writes := range []bool{true, false} {
			for _, slot := range []int64{3, 15} {
				runs := 0
				_, err := near.Update(t.Context(), func(tx *store.Tx) error {
					e, err := near.events.In(tx).Get(trivet.EventName("u", slot))
					if err != nil && !errors.Is(err, trivet.ErrNotFound) {
						return err
					}
					if runs++; runs == 1 {
						e := event("u", slot)
						e.Spec.Message = fmt.Sprint("written by the other ", writes)
						far.must(t, func(tx *store.Tx) error { return far.events.In(tx).Put(e) })
					} else if e == nil || !strings.HasPrefix(e.Spec.Message, "written by the other") {
						t.Errorf("%d before, slot %d: the second run reads %+v", there, slot, e)
					}
					if writes {
						return near.machines.In(tx).Put(machine("m1", fmt.Sprint("run ", runs, " of ", slot)))
					}
					return nil
				})
				if err != nil || runs != 2 {
					t.Errorf("%d before, slot %d: %d runs, %v", there, slot, runs, err)
				}
			}
		}
	}
}

// Watchers get each event once and in order, also those that a page is written with, from the feed and from etcd.
func TestColdRecordsAreWatched(t *testing.T) {
	t.Parallel()
	m := storetest.Member(t)
	a := openArchive(t, m.Client(), store.Options{})
	from := a.put(t, "m0", "")
	now := a.Watch(0, "Event")
	var want []string
	for seq, revision := range a.happen(t, "u", 0, 17) {
		want = append(want, at("", trivet.EventName("u", int64(seq)), revision))
	}
	many := a.must(t, func(tx *store.Tx) error {
		var errs []error
		for seq := int64(18); seq < 35; seq++ {
			errs = append(errs, a.events.In(tx).Put(event("u", seq)))
		}
		return errors.Join(errs...)
	})
	for seq := int64(18); seq < 35; seq++ {
		want = append(want, at("", trivet.EventName("u", seq), many))
	}
	a.must(t, func(tx *store.Tx) error { return a.events.In(tx).Drop("machine.u.") })
	want = append(want, at("", trivet.EventName("u2", 0), a.happen(t, "u2", 0, 0)[0]))
	later := openArchive(t, m.Client(), store.Options{})
	for name, w := range map[string]*store.Watcher{"from the feed": now, "again": a.Watch(from, "Event"),
		"from etcd": later.Watch(from, "Event")} {
		if got := next(t, w, len(want)); !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
}

// All records of a subject are dropped at once, and those of others are not.
func TestColdRecordsAreDropped(t *testing.T) {
	t.Parallel()
	m := storetest.Member(t)
	a := openArchive(t, m.Client(), store.Options{})
	a.happen(t, "u", 0, 40)
	a.happen(t, "u2", 0, 3)
	a.must(t, func(tx *store.Tx) error {
		return errors.Join(a.machines.In(tx).Put(machine("m1", "")), a.events.In(tx).Drop("machine.u."))
	})
	if got := a.all(t, "", 0); !slices.Equal(got, numbers(0, 3)) {
		t.Errorf("left are %v", got)
	}
	if keys := stored(t, m.Client()); len(keys) != 4 {
		t.Errorf("left are %v", keys)
	}
	for _, do := range []func(tx *store.Tx) error{
		func(tx *store.Tx) error { return a.events.In(tx).Drop("") },
		func(tx *store.Tx) error { return tx.Delete("Event", trivet.EventName("u2", 0)) },
	} {
		if _, err := a.Update(t.Context(), do); !errors.Is(err, trivet.ErrInvalid) {
			t.Errorf("one of them, or all: %v", err)
		}
	}
}

// One record of each subject is found without reading the others.
func TestNextSubject(t *testing.T) {
	t.Parallel()
	m := storetest.Member(t)
	a := openArchive(t, m.Client(), store.Options{})
	for i := range 5 {
		a.happen(t, fmt.Sprint("u", i), 0, int64(8*i))
	}
	(&witness{t, m.Client()}).put("/trivet-history/event/machine.u2.0", "forged")
	var got []string
	for beyond := ""; ; {
		e, err := a.events.Next(t.Context(), beyond)
		if err != nil {
			t.Fatal(err)
		}
		if e == nil {
			break
		}
		got = append(got, e.Spec.SubjectUID)
		beyond = trivet.EventPrefix(e.Spec.Subject, e.Spec.SubjectUID)
	}
	if want := []string{"u0", "u1", "u2", "u3", "u4"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// A head whose copy is behind what etcd has compacted reads history once its copy is not: never the history of another
// revision than its records.
func TestHistoryIsReadAtTheCopysRevision(t *testing.T) {
	t.Parallel()
	m := storetest.Member(t)
	near := openArchive(t, m.Client(), store.Options{Head: "head0"})
	f := newFaults(m.Client(), 1)
	far := openArchive(t, f.client(), store.Options{Head: "head1"})
	near.happen(t, "u", 0, 3)
	far.synced(t)
	before := far.Revision()
	release := f.stall()
	revisions := near.happen(t, "u", 4, 9)
	if got := far.all(t, "", 0); far.Revision() != before || !slices.Equal(got, numbers(0, 3)) {
		t.Errorf("at revision %d, where the copy began at %d: %v", far.Revision(), before, got)
	}
	last := revisions[len(revisions)-1]
	if err := m.Compact(t.Context(), last); err != nil {
		t.Fatal(err)
	}
	type result struct {
		events []*trivet.Event
		err    error
	}
	read := make(chan result)
	go func() {
		events, err := far.events.Under(t.Context(), "", "", 0)
		read <- result{events, err}
	}()
	release()
	if r := <-read; r.err != nil || len(r.events) != 10 || far.Revision() < last {
		t.Errorf("after the compaction: %d events, %v", len(r.events), r.err)
	}
}

// A forged page is read by no one, and prevents no transition: the next ones replace it.
func TestForgedHistory(t *testing.T) {
	t.Parallel()
	m := storetest.Member(t)
	a := openArchive(t, m.Client(), store.Options{})
	w := &witness{t, m.Client()}
	a.happen(t, "u", 0, 15)
	a.happen(t, "u2", 0, 0)
	const page = "/trivet-history/event/machine.u.0"
	w.put(page+"!3", w.value(page))
	w.put(page, "forged")
	a.synced(t)
	if got := a.all(t, "", 0); !slices.Equal(got, []int64{0}) {
		t.Errorf("read %v", got)
	}
	if e, err := a.events.Get(t.Context(), "machine.u.03"); !errors.Is(err, store.ErrRefused) {
		t.Errorf("read %+v, %v", e, err)
	}
	if n := a.Refused(); n != 0 {
		t.Errorf("%d values of the copy are refused", n)
	}
	a.happen(t, "u", 256, 256+15)
	if got := a.all(t, "machine.u.", 0); !slices.Equal(got, numbers(256, 256+15)) {
		t.Errorf("after they were written again: %v", got)
	}
}

// When the key of the store is replaced, history is encrypted again: its revisions stay, and no watcher gets an event.
func TestHistoryIsResealed(t *testing.T) {
	t.Parallel()
	m, old, next := storetest.Member(t), keyring.New(), keyring.New()
	cipher, ring := keyring.NewCipher(keyring.Of(old)), keyring.Of(old)
	a := openArchive(t, m.Client(), store.Options{Cipher: cipher})
	revisions := a.happen(t, "u", 0, 20)
	k := &keyed{a.head, cipher, ring}
	k.add(next)
	a.must(t, func(tx *store.Tx) error { return tx.SetActive(next.ID()) })
	watch := a.Watch(0, "Event")
	k.reseal(t)
	if keys := storedKeys(t, m); keys[old.ID().String()] > 0 {
		t.Errorf("under the keys are %v", keys)
	}
	for seq, revision := range revisions {
		e, err := a.events.Get(t.Context(), trivet.EventName("u", int64(seq)))
		if err != nil || e.Revision != revision {
			t.Fatalf("event %d: %+v, %v; want revision %d", seq, e, err, revision)
		}
	}
	revisions = a.happen(t, "u", 21, 40)
	for i, e := range nextAll(t, a.head, watch) {
		if i >= len(revisions) || e.Revision != revisions[i] {
			t.Errorf("watchers got %s", e.JSON())
		}
	}
	if got := a.all(t, "", 0); !slices.Equal(got, numbers(0, 40)) {
		t.Errorf("after the rotation: %v", got)
	}
}

// lateKV reads as a member does that has sent the events of a revision, and has not applied it yet.
type lateKV struct {
	clientv3.KV
	prefix        string // of the keys
	late, refused int
}

func (kv *lateKV) Get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	if op := clientv3.OpGet(key, opts...); strings.HasPrefix(key, kv.prefix) && op.Rev() > 0 && kv.late > 0 {
		kv.late--
		kv.refused++
		return nil, rpctypes.ErrFutureRev
	}
	return kv.KV.Get(ctx, key, opts...)
}

// A read of history, by itself or in a transaction, waits for a member that is a moment behind the copy.
func TestHistoryIsReadWhenTheMemberHasIt(t *testing.T) {
	t.Parallel()
	m := storetest.Member(t)
	client := clientv3.NewCtxClient(context.Background())
	kv := &lateKV{KV: m.Client().KV, prefix: "/trivet-history/"}
	client.KV, client.Watcher, client.Lease = kv, m.Client().Watcher, m.Client().Lease
	a := openArchive(t, client, store.Options{})
	kv.late = 2
	a.happen(t, "u1", 1, 1)
	kv.late = 2
	if got := a.all(t, trivet.EventPrefix("machine/u1", "u1"), 10); !slices.Equal(got, []int64{1}) {
		t.Errorf("the events are %v", got)
	}
	if kv.refused != 4 {
		t.Errorf("%d reads were refused", kv.refused)
	}
}

// The records of a page that one transaction writes have one key, with those that the page had. Readers and watchers of
// every head see each of them as if it had a key of its own.
func TestColdRecordsOfATransactionShareAKey(t *testing.T) {
	t.Parallel()
	m := storetest.Member(t)
	a := openArchive(t, m.Client(), store.Options{})
	other := openArchive(t, m.Client(), store.Options{})
	watches := map[string]*store.Watcher{"writer": a.Watch(0, "Event"), "other": other.Watch(0, "Event")}
	next, written := int64(0), map[int64]int64{} // the revisions, by number
	happen := func(n int64) {
		t.Helper()
		revision := a.must(t, func(tx *store.Tx) error {
			for seq := next; seq < next+n; seq++ {
				if err := a.events.In(tx).Put(event("u", seq)); err != nil {
					return err
				}
			}
			return nil
		})
		for range n {
			written[next] = revision
			next++
		}
	}
	for _, step := range []struct{ events, keys int64 }{
		{1, 1}, {2, 1}, {1, 2}, {1, 3}, {3, 1}, // 8
		{5, 1}, {1, 2}, // 14
		{4, 2},                  // 18: the ends of both pages
		{14, 2},                 // 32
		{1, 3}, {1, 4}, {30, 4}, // 64
	} {
		happen(step.events)
		if keys := stored(t, m.Client()); int64(len(keys)) != step.keys {
			t.Errorf("after %d events, the last %d in one transaction: %d keys, want %d: %v", next, step.events,
				len(keys), step.keys, keys)
		}
	}
	for name, h := range map[string]*archive{"writer": a, "other": other} {
		if err := h.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		for seq, revision := range written {
			e, err := h.events.Get(t.Context(), trivet.EventName("u", seq))
			if err != nil || e.Spec.Seq != seq || e.Revision != revision {
				t.Errorf("%s: %+v, %v; want number %d of revision %d", name, e, err, seq, revision)
			}
		}
		for want := int64(0); want < next; {
			events, err := watches[name].Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range events {
				got, ok := e.Record().(*trivet.Event)
				if !ok || got.Spec.Seq != want || e.Revision != written[want] || got.Revision != e.Revision {
					t.Fatalf("%s: a watcher got %+v at %d, want number %d of revision %d", name, got, e.Revision, want,
						written[want])
				}
				want++
			}
		}
	}
}
