package maintenance_test

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/cluster"
	"github.com/trivet-project/trivet/internal/maintenance"
	"github.com/trivet-project/trivet/internal/peer"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/storetest"
)

// A store that was full takes writes again once records are deleted, without an operator: its history is dropped, its
// file becomes smaller. What happens is reported as events.
func TestFullStoreRecovers(t *testing.T) {
	t.Parallel()
	m := storetest.MemberWith(t, cluster.Config{QuotaBytes: 20 << 20})
	tables := storetest.On(t, m, store.Options{Head: "head0", Admit: m.Admit}, state.New)
	if _, err := tables.Store.Update(t.Context(), func(tx *store.Tx) error {
		return tables.Heads.In(tx).Create(&trivet.Head{Meta: trivet.Meta{Name: "head0"}})
	}); err != nil {
		t.Fatal(err)
	}
	names, err := fill(t.Context(), m, tables)
	if err == nil || m.CheckQuota() == nil {
		t.Fatalf("%d records do not fill the store: %+v", len(names), m.Usage())
	}
	run(t, m, tables)
	eventReason(t, tables, trivet.ReasonStoreFull)
	for _, name := range names {
		if _, err := tables.Store.Update(t.Context(), func(tx *store.Tx) error {
			return tables.Secrets.In(tx).Delete("default/" + name)
		}); err != nil {
			t.Fatal(err)
		}
	}
	eventReason(t, tables, trivet.ReasonStoreNormal)
	// the rest of the history is dropped after Config.Retention
	for u := m.Usage(); u.File > u.Quota/10; u = m.Usage() {
		if err := m.Compact(t.Context(), tables.Store.Revision()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
	}
	if _, err := fill(t.Context(), m, tables); err == nil {
		t.Error("the store does not fill a second time")
	}
}

// fill creates records until the store refuses one.
func fill(ctx context.Context, m *cluster.Member, tables *state.Tables) (names []string, err error) {
	data := map[string]string{}
	for i := range 8 {
		data[fmt.Sprint("k", i)] = trivet.Sealed + random(15<<10)
	}
	for len(names) < 1000 {
		name := fmt.Sprint("big", len(names))
		if _, err := tables.Store.Update(ctx, func(tx *store.Tx) error {
			return tables.Secrets.In(tx).Create(&trivet.Secret{Meta: trivet.Meta{Project: "default", Name: name},
				Spec: trivet.SecretSpec{Data: data}})
		}); err != nil {
			return names, err
		}
		names = append(names, name)
		if u := m.Usage(); u.Used > u.Quota/2 {
			time.Sleep(10 * time.Millisecond) // the usage is known after etcd's commit
		}
	}
	return names, nil
}

// run maintains a member that is alone, until the test ends.
func run(t *testing.T, m *cluster.Member, tables *state.Tables) {
	t.Helper()
	k := maintenance.New(maintenance.Config{Head: "head0", Member: m, Tables: tables, Interval: 50 * time.Millisecond,
		Log:      slog.New(slog.DiscardHandler),
		Others:   func() map[string]string { return nil },
		Statuses: func() map[string]peer.Status { return nil },
	})
	done := make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	go func() { defer close(done); k.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
}

// eventReason waits for an event.
func eventReason(t *testing.T, tables *state.Tables, reason string) {
	t.Helper()
	for t.Context().Err() == nil {
		if e, err := tables.Events.Get(t.Context(), "head.head0.store"); err == nil && e.Spec.Reason == reason {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("no event %s", reason)
}

// random returns a text that does not compress.
func random(n int) string {
	text := make([]byte, n/2)
	_, _ = rand.Read(text)
	return hex.EncodeToString(text)
}
