package server

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// A part that never ends, such as one that computes, cannot keep a head from stopping.
func TestStuckPartDoesNotKeepAHead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		release := make(chan struct{})
		defer close(release)
		began := time.Now()
		time.AfterFunc(time.Hour, stop) // it serves until then
		err := endInTime(ctx, stopTimeout, func() error { <-release; return nil })
		if !errors.Is(err, ErrStuck) || time.Since(began) != time.Hour+stopTimeout {
			t.Errorf("%v after %s", err, time.Since(began))
		}
	})
}

// The error of a part that fails, and of one that ends in time, is that of the head.
func TestEndInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		if err := endInTime(t.Context(), stopTimeout, func() error { return broken }); !errors.Is(err, broken) {
			t.Error(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		stop()
		slow := func() error { time.Sleep(stopTimeout / 2); return broken }
		if err := endInTime(ctx, stopTimeout, slow); !errors.Is(err, broken) {
			t.Error(err)
		}
	})
}
