package cluster

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

// healLimit is how long after the network is whole again a write is acknowledged at the latest, however long it was cut.
const healLimit = 3 * time.Second

func TestWritesAfterHeal(t *testing.T) { writesAfterHeal(t, 20*time.Second) }

func TestSoakWritesAfterHeal(t *testing.T) {
	soak(t)
	writesAfterHeal(t, 65*time.Second, 110*time.Second)
}

// writesAfterHeal cuts all heads off each other for some times, and checks when each of them takes writes again.
func writesAfterHeal(t *testing.T, cuts ...time.Duration) {
	if testing.Short() {
		t.Skip("takes minutes")
	}
	s := newHeads(t, newHistory(seedOf(t)), plan{program: three(t).program, heads: 3, lossy: true})
	for i, cut := range cuts {
		for _, h := range s.heads {
			if err := s.fabric.isolate(h.port); err != nil {
				t.Fatal(err)
			}
		}
		nap(t.Context(), cut)
		if err := s.fabric.heal(); err != nil {
			t.Fatal(err)
		}
		healed := time.Now()
		for _, h := range s.heads {
			if err := s.writeBy(t.Context(), h, fmt.Sprintf("cut%d-%s", i, h.port)); err != nil {
				t.Fatal(err)
			}
			took := time.Since(healed)
			t.Logf("cut for %v: %s took a write %v after the heal", cut, h.port, took)
			if took > healLimit {
				t.Errorf("after a cut of %v, %s took no write for %v", cut, h.port, took)
			}
		}
	}
}

// writeBy creates a record through one head, retrying until that succeeds.
func (s *site) writeBy(ctx context.Context, h *head, name string) error {
	ctx, cancel := context.WithTimeout(ctx, healTimeout)
	defer cancel()
	for {
		c, err := s.client(-1, h)
		if err != nil {
			return err
		}
		try, end := context.WithTimeout(ctx, time.Second)
		_, err = client.Of[trivet.Account](c).Create(try, &trivet.Account{Meta: trivet.Meta{Name: name},
			Spec: trivet.AccountSpec{Role: trivet.AccountAdmin}})
		end()
		c.Close()
		if err == nil || errors.Is(err, trivet.ErrExists) {
			return nil
		}
		if ctx.Err() != nil {
			return err
		}
		nap(ctx, 50*time.Millisecond)
	}
}
