package cluster_test

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/cluster"
)

// LastIndex is at least what a member reports to others as acknowledged, also after a kill.
func TestLastIndex(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if index, err := cluster.LastIndex(dir); index != 0 || err != nil {
		t.Errorf("of an empty directory: %d, %v", index, err)
	}
	m := start(t, dir)
	for range 10 {
		if _, err := m.Client().Put(t.Context(), "k", "v"); err != nil {
			t.Fatal(err)
		}
	}
	first, err := cluster.LastIndex(dir)
	if err != nil || first < 10 {
		t.Errorf("after 10 writes: %d, %v", first, err)
	}
	if _, err := m.Client().Put(t.Context(), "k", "v"); err != nil {
		t.Fatal(err)
	}
	if last, err := cluster.LastIndex(dir); err != nil || last <= first {
		t.Errorf("after another write: %d, before it %d, %v", last, first, err)
	}
}

// A member does not start with data that differs from that of the others, and says what to do.
func TestDifferentDataIsFound(t *testing.T) {
	t.Parallel()
	s, m := three(t)
	s.eventually("write", func(ctx context.Context) error {
		_, err := m[0].Client().Put(ctx, "k", "correct value")
		return err
	})
	s.eventually("replicate", func(context.Context) error {
		if m[2].Revision() < m[0].Revision() {
			return errors.New("behind")
		}
		return nil
	})
	m[2].Close()
	change(t, m[2].cfg.Dir, "correct value", "damaged value")
	damaged, err := cluster.Open(t.Context(), m[2].cfg)
	if err == nil {
		damaged.Close()
		t.Fatal("a member starts with damaged data")
	}
	var terr *trivet.Error
	if !errors.As(err, &terr) || !strings.Contains(terr.Hint, "head replace") {
		t.Errorf("%v; want a hint to replace the head", err)
	}
}

// change replaces a value in a member's database.
func change(t *testing.T, dir, from, to string) {
	t.Helper()
	db, err := bbolt.Open(filepath.Join(dir, "etcd/member/snap/db"), 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	changed := 0
	err = db.Update(func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte("key"))
		return b.ForEach(func(k, v []byte) error {
			if !bytes.Contains(v, []byte(from)) {
				return nil
			}
			changed++
			return b.Put(bytes.Clone(k), bytes.ReplaceAll(v, []byte(from), []byte(to)))
		})
	})
	if err != nil || changed == 0 {
		t.Fatalf("changed %d values: %v", changed, err)
	}
}
