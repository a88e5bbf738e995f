package power

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trivet-project/trivet/internal/reconcile"
)

// BMCs that do not answer hold up the others by no more than the first attempt at each: 2,000 machines, of which 400 hang
// as long as a head may use a BMC. 64 are used at once, each machine's by one worker, and half of the workers at most
// use those that have failed.
func TestSlowBMCsHoldUpNoOthers(t *testing.T) {
	const machines, slow, healthy = 2_000, 400, 8 * time.Second
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		running, retrying, most := 0, 0, 0
		attempts, done := map[string]int{}, 0
		begin, last := time.Now(), time.Duration(0)
		send := func(_ context.Context, key string) (time.Duration, error) {
			hangs := strings.HasPrefix(key, "slow")
			mu.Lock()
			attempts[key]++
			retry := attempts[key] > 1
			running++
			if most = max(most, running); retry {
				retrying++
			}
			if retrying > Declaration.Workers/2 {
				t.Errorf("%d BMCs that have failed are used at once", retrying)
			}
			mu.Unlock()
			if hangs {
				time.Sleep(intentHold)
			} else {
				time.Sleep(healthy)
			}
			mu.Lock()
			defer mu.Unlock()
			if running--; retry {
				retrying--
			}
			if hangs {
				return 0, errors.New("no answer")
			}
			done++
			last = time.Since(begin)
			return 0, nil
		}
		q := reconcile.NewQueue()
		for i := range machines {
			name := fmt.Sprint("healthy", i)
			if i%(machines/slow) == 0 {
				name = fmt.Sprint("slow", i)
			}
			q.Add(name)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { q.Run(ctx, Declaration.Workers, slog.New(slog.DiscardHandler), send) })
		time.Sleep(20 * time.Minute)
		cancel()
		wg.Wait()
		first := slow*intentHold + (machines-slow)*healthy // by one worker
		if bound := first / time.Duration(Declaration.Workers/2); done != machines-slow || last > bound {
			t.Errorf("%d machines were powered on, the last after %s; want %d within %s", done, last, machines-slow,
				bound)
		}
		if most != 64 {
			t.Errorf("%d BMCs were used at once, want 64", most)
		}
	})
}
