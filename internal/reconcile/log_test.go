package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trivet-project/trivet/internal/reconcile"
)

// A key that fails again and again is logged when it begins to, when its error changes, and when it works again, under
// the name of its subject. The numbers in an error differ with each attempt.
func TestFailuresAreLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		q, runs := reconcile.NewQueue(), 0
		do := func(context.Context, string) (time.Duration, error) {
			switch runs++; {
			case runs <= 10:
				return 0, fmt.Errorf("refused, from port %d", runs)
			case runs <= 20:
				return 0, errors.New("no answer")
			}
			return 0, nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			q.RunNamed(ctx, 1, "machine", slog.New(slog.NewTextHandler(&log, nil)), do)
			close(done)
		}()
		q.Add("m1")
		time.Sleep(time.Hour)
		q.Add("m1")
		time.Sleep(time.Hour)
		cancel()
		<-done
		lines := strings.Split(strings.TrimSpace(log.String()), "\n")
		want := []string{"refused, from port 1", "no answer", "works again"}
		if runs != 22 || len(lines) != len(want) {
			t.Fatalf("after %d runs:\n%s", runs, &log)
		}
		for i := range want {
			if !strings.Contains(lines[i], want[i]) || !strings.Contains(lines[i], "machine=m1") {
				t.Errorf("line %d lacks %q: %s", i, want[i], lines[i])
			}
		}
	})
}
