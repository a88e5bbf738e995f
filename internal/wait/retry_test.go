package wait

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestRetry(t *testing.T) {
	flaky, final := errors.New("no route"), errors.New("not found")
	transient := func(err error) bool { return errors.Is(err, flaky) }
	for _, c := range []struct {
		results []error
		want    error
		calls   int
		took    time.Duration
	}{
		{[]error{nil}, nil, 1, 0},
		{[]error{flaky, flaky, nil}, nil, 3, 3 * time.Second},
		{[]error{flaky, final}, final, 2, time.Second},
		{[]error{flaky, flaky, flaky, flaky, nil}, flaky, 4, 7 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			calls, began := 0, time.Now()
			err := Retry(t.Context(), 4, time.Second, transient, func() error { calls++; return c.results[calls-1] })
			if !errors.Is(err, c.want) || calls != c.calls || time.Since(began) != c.took {
				t.Errorf("%v: %v after %d calls and %v", c.results, err, calls, time.Since(began))
			}
			if c.calls == 4 && !strings.Contains(err.Error(), "4 attempts") {
				t.Errorf("the error does not say how often: %v", err)
			}
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	err := Retry(ctx, 4, time.Hour, transient, func() error { cancel(); return flaky })
	if !errors.Is(err, flaky) {
		t.Errorf("when the caller stops: %v", err)
	}
}
