package collect

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/storetest"
)

// Each sweep looks at so many records at most, goes on where the last one ended, and does so sooner where there was
// something to do. One that fails is repeated.
func TestPassInSlices(t *testing.T) {
	t.Parallel()
	tables, now := storetest.New(t, state.New), time.Now()
	const all = 2*slice + 1
	for i := 0; i < all; i += 91 {
		_, err := tables.Store.Update(t.Context(), func(tx *store.Tx) (err error) {
			for j := i; j < min(i+91, all); j++ {
				token := &trivet.Token{Meta: trivet.Meta{Name: fmt.Sprintf("t%04d", j)},
					Spec: trivet.TokenSpec{Join: trivet.RoleVoter, Hash: "x", Expires: now.Add(time.Hour)}}
				if j == slice {
					token.Spec.Expires = now.Add(-2 * keepToken)
				}
				err = errors.Join(err, tables.Tokens.In(tx).Put(token))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	c := New(Config{Tables: tables})
	names := []string{}
	stop := errors.New("stop")
	next := func(fails error) error {
		names = nil
		c.begin()
		return each(t.Context(), &c.pass, "test", tables.Tokens, func(token *trivet.Token) error {
			names = append(names, token.Name)
			return fails
		})
	}
	expect := func(what string, n int, first string, pause time.Duration) {
		t.Helper()
		if len(names) != n || names[0] != first || c.pause() != pause {
			t.Errorf("%s: %d records from %s, then %s", what, len(names), names[0], c.pause())
		}
	}
	for range 2 { // passes
		if err := next(nil); err != nil {
			t.Fatal(err)
		}
		expect("at first", slice, "t0000", slicePause)
		if err := next(stop); !errors.Is(err, stop) {
			t.Fatal(err)
		}
		if err := next(nil); err != nil {
			t.Fatal(err)
		}
		expect("after a failure", slice, fmt.Sprintf("t%04d", slice), slicePause)
		if err := next(nil); err != nil {
			t.Fatal(err)
		}
		expect("at last", 1, fmt.Sprintf("t%04d", 2*slice), interval)
	}
	for i, want := range []time.Duration{slicePause, busyPause, interval, slicePause} {
		if after, err := c.Reconcile(t.Context(), keyTokens); err != nil || after != want {
			t.Errorf("slice %d is followed by a pause of %s, want %s; %v", i, after, want, err)
		}
	}
	if n := tables.Tokens.Len(); n != all-1 {
		t.Errorf("%d tokens are left, want %d", n, all-1)
	}
}
