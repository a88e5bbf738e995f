package controller

import (
	"errors"
	"log/slog"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/cluster"
	"github.com/trivet-project/trivet/internal/fleet"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
)

// newFleet returns a fleet over a real store that holds these heads.
func newFleet(t *testing.T, heads ...*trivet.Head) *fleet.Fleet {
	t.Helper()
	m, err := cluster.Start(t.Context(), cluster.Config{Dir: t.TempDir(), Name: "head0"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	s := store.New(m.Client(), store.Options{})
	f := fleet.New(state.New(s), "head0", slog.New(slog.DiscardHandler))
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	_, err = s.Update(t.Context(), func(tx *store.Tx) (err error) {
		for _, h := range heads {
			err = errors.Join(err, f.Heads.In(tx).Create(h))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return f
}
