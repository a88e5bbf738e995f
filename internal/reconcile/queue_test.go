package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trivet-project/trivet/internal/reconcile"
)

// work runs a queue while the test's function runs, and waits until it is idle.
func work(t *testing.T, q *reconcile.Queue, workers int,
	do func(context.Context, string) (time.Duration, error), test func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { q.Run(ctx, workers, slog.New(slog.DiscardHandler), do) })
	test()
	cancel()
	wg.Wait()
}

func TestQueueKeysCoalesce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q, runs, release := reconcile.NewQueue(), atomic.Int64{}, make(chan struct{})
		do := func(context.Context, string) (time.Duration, error) {
			runs.Add(1)
			<-release
			return 0, nil
		}
		for range 3 {
			q.Add("a")
		}
		work(t, q, 4, do, func() {
			synctest.Wait()
			if n := runs.Load(); n != 1 {
				t.Errorf("%d runs of a key that was added three times, want 1", n)
			}
			for range 3 {
				q.Add("a")
			}
			synctest.Wait()
			if n := runs.Load(); n != 1 {
				t.Errorf("%d runs while one runs, want 1", n)
			}
			close(release)
			synctest.Wait()
			if n := runs.Load(); n != 2 {
				t.Errorf("%d runs after it was added during one, want 2", n)
			}
		})
	})
}

func TestQueueKeyRunsOnceAtATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q, running, runs := reconcile.NewQueue(), sync.Map{}, atomic.Int64{}
		do := func(_ context.Context, key string) (time.Duration, error) {
			if _, twice := running.LoadOrStore(key, true); twice {
				t.Errorf("%s runs twice at once", key)
			}
			time.Sleep(time.Second)
			running.Delete(key)
			runs.Add(1)
			return 0, nil
		}
		work(t, q, 8, do, func() {
			for i := range 40 {
				q.Add(fmt.Sprint("k", i%4))
				time.Sleep(100 * time.Millisecond)
			}
			time.Sleep(time.Minute)
		})
		// Four keys, added throughout four seconds: four runs each, and one for what was added during the last.
		if n := runs.Load(); n < 16 || n > 20 {
			t.Errorf("%d runs", n)
		}
	})
}

func TestQueueBacksOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var runs []time.Duration // since the previous one
		last := time.Now()
		q := reconcile.NewQueue()
		do := func(context.Context, string) (time.Duration, error) {
			runs, last = append(runs, time.Since(last)), time.Now()
			switch len(runs) {
			case 13: // at last
				return 7 * time.Second, nil
			case 15:
				return 0, nil
			}
			return 0, errors.New("not yet")
		}
		q.Add("a")
		work(t, q, 1, do, func() { time.Sleep(time.Hour) })
		if len(runs) != 15 {
			t.Fatalf("%d runs, want 15: %v", len(runs), runs)
		}
		for i, wait := range runs[1:13] {
			about := min(100*time.Millisecond<<i, 30*time.Second)
			if wait < about/2 || wait >= about*3/2 {
				t.Errorf("after failure %d it ran after %s, want about %s", i+1, wait, about)
			}
		}
		if runs[13] != 7*time.Second || runs[14] >= 150*time.Millisecond {
			t.Errorf("after a success it ran after %s, want 7s; then after %s, want about 100ms", runs[13], runs[14])
		}
	})
}

func TestQueueAddedKeyDoesNotWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var at []time.Duration
		began, q := time.Now(), reconcile.NewQueue()
		do := func(context.Context, string) (time.Duration, error) {
			at = append(at, time.Since(began))
			return time.Minute, nil
		}
		q.Add("a")
		work(t, q, 1, do, func() {
			time.Sleep(time.Second)
			q.Add("a")
			time.Sleep(90 * time.Second)
		})
		if want := []time.Duration{0, time.Second, 61 * time.Second}; !slices.Equal(at, want) {
			t.Errorf("runs at %v, want %v", at, want)
		}
	})
}

// Keys that are running are the last; keys that are ready or added later do not run.
func TestQueueStops(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q, runs := reconcile.NewQueue(), atomic.Int64{}
		do := func(ctx context.Context, _ string) (time.Duration, error) {
			runs.Add(1)
			<-ctx.Done()
			return time.Second, ctx.Err()
		}
		for i := range 100 {
			q.Add(fmt.Sprint("k", i))
		}
		work(t, q, 2, do, synctest.Wait)
		q.Add("late")
		time.Sleep(time.Hour)
		if n := runs.Load(); n != 2 {
			t.Errorf("%d runs, want the 2 that ran", n)
		}
	})
}

// A failing key that is added again and again, as by its own writes, is retried with backoff all the same, until it
// is forgotten.
func TestQueueAddedKeyKeepsItsBackoff(t *testing.T) {
	t.Parallel()
	for name, add := range map[string]func(*reconcile.Queue){
		"added":       func(q *reconcile.Queue) { q.Add("a") },
		"added later": func(q *reconcile.Queue) { q.AddAfter("a", time.Millisecond) },
	} {
		synctest.Test(t, func(t *testing.T) {
			q, runs := reconcile.NewQueue(), atomic.Int64{}
			do := func(context.Context, string) (time.Duration, error) {
				if runs.Add(1) < 1000 {
					add(q) // its own write
				}
				return 0, errors.New("refused")
			}
			q.Add("a")
			work(t, q, 1, do, func() {
				for range 60_000 {
					add(q)
					time.Sleep(time.Millisecond)
				}
				before := runs.Load()
				if before < 8 || before > 13 { // after 0.1 s, 0.2 s, 0.4 s, ... 30 s
					t.Errorf("%s: %d runs in a minute, want about 10", name, before)
				}
				q.Forget("a")
				add(q)
				time.Sleep(time.Second)
				if n := runs.Load() - before; n < 3 || n > 5 {
					t.Errorf("%s: %d runs in the second after it was forgotten, want about 4", name, n)
				}
			})
		})
	}
}

// Hundreds of keys that take long and fail, as slow BMCs do, leave half of the workers to the others.
func TestSlowFailuresDoNotHoldUpOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const workers, slow, others = 8, 200, 500
		q, added, longest := reconcile.NewQueue(), sync.Map{}, atomic.Int64{}
		var done, failed atomic.Int64
		do := func(_ context.Context, key string) (time.Duration, error) {
			at, isOther := added.Load(key)
			if !isOther {
				time.Sleep(20 * time.Second)
				failed.Add(1)
				return 0, errors.New("no answer")
			}
			waited := time.Since(at.(time.Time))
			longest.Store(max(longest.Load(), int64(waited)))
			time.Sleep(time.Second)
			done.Add(1)
			return 0, nil
		}
		work(t, q, workers, do, func() {
			for i := range slow {
				q.Add(fmt.Sprint("slow", i))
			}
			time.Sleep(slow * 20 * time.Second / workers) // each has failed once
			before := failed.Load()
			for i := range others {
				key := fmt.Sprint("other", i)
				added.Store(key, time.Now())
				q.Add(key)
				time.Sleep(time.Second)
			}
			time.Sleep(time.Minute)
			if failed.Load() == before {
				t.Error("the slow ones are not retried any more")
			}
		})
		if n := done.Load(); n != others {
			t.Errorf("%d of %d others were processed", n, others)
		}
		if d := time.Duration(longest.Load()); d > time.Second {
			t.Errorf("one waited for %s behind slow ones", d)
		}
	})
}
