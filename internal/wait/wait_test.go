package wait

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if err := Sleep(t.Context(), time.Minute); err != nil || time.Since(began) != time.Minute {
			t.Errorf("%v after %v, want nil after 1m", err, time.Since(began))
		}
		cause := errors.New("stopped")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(cause) })
		began = time.Now()
		if err := Sleep(ctx, time.Minute); err != cause || time.Since(began) != time.Second {
			t.Errorf("%v after %v, want the cause after 1s", err, time.Since(began))
		}
	})
}

func TestJitter(t *testing.T) {
	for range 1000 {
		if d := Jitter(time.Second); d < time.Second/2 || d > time.Second {
			t.Fatalf("%v is not between 500ms and 1s", d)
		}
	}
	if d := Jitter(0); d != 0 {
		t.Errorf("%v, want 0", d)
	}
}
