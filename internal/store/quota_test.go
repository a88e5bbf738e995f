package store_test

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/cluster"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/storetest"
)

// fillStore creates records until the store refuses one, and returns their full names and the refusal.
func fillStore(t *testing.T, m *cluster.Member, s *store.Store,
	secrets *store.Table[trivet.Secret]) (names []string, refused error) {
	t.Helper()
	data := map[string]string{}
	for i := range 8 {
		data[fmt.Sprint("k", i)] = trivet.Sealed + random(15<<10)
	}
	for refused == nil && len(names) < 1000 {
		name := fmt.Sprint("big", len(names))
		_, refused = s.Update(t.Context(), func(tx *store.Tx) error {
			return secrets.In(tx).Create(&trivet.Secret{Meta: trivet.Meta{Project: "default", Name: name},
				Spec: trivet.SecretSpec{Data: data}})
		})
		if refused == nil {
			names = append(names, trivet.FullName("default", name))
		}
		if u := m.Usage(); u.Used > u.Quota/2 {
			time.Sleep(10 * time.Millisecond) // the usage is known after etcd's commit
		}
	}
	return names, refused
}

// A full store refuses what makes it larger. It accepts deletions, small status writes and leases.
func TestFullStoreAcceptsDeletions(t *testing.T) {
	t.Parallel()
	m := storetest.MemberWith(t, cluster.Config{QuotaBytes: 20 << 20})
	var s *store.Store
	secrets := storetest.On(t, m, store.Options{Head: "head0", Admit: m.Admit},
		func(of *store.Store) *store.Table[trivet.Secret] { s = of; return store.NewTable[trivet.Secret](of) })
	names, refused := fillStore(t, m, s, secrets)
	var terr *trivet.Error
	if !errors.Is(refused, trivet.ErrUnavailable) || !errors.As(refused, &terr) ||
		!strings.Contains(terr.Hint, "delete") {
		t.Errorf("the store refuses with %v; want a hint to delete records", refused)
	}
	if !m.Usage().Full() {
		t.Errorf("the store is not full: %+v", m.Usage())
	}
	if _, err := s.Update(t.Context(), func(tx *store.Tx) error {
		v, err := secrets.In(tx).Get(names[0])
		if err != nil {
			return err
		}
		v.Labels = map[string]string{"state": "changed"}
		return secrets.In(tx).Put(v)
	}); err != nil {
		t.Errorf("a small change of a full store: %v", err)
	}
	for _, name := range names {
		_, err := s.Update(t.Context(), func(tx *store.Tx) error { return secrets.In(tx).Delete(name) })
		if err != nil {
			t.Fatalf("a deletion from a full store: %v", err)
		}
	}
}

// random returns a text that does not compress.
func random(n int) string {
	text := make([]byte, n/2)
	_, _ = rand.Read(text)
	return hex.EncodeToString(text)
}
