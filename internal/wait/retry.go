package wait

import (
	"context"
	"fmt"
	"time"
)

// Retry calls do until it succeeds, fails with an error that is not transient, or has been called attempts times; the
// error then says so. It waits for pause before the second call, and before each further one twice as long.
func Retry(ctx context.Context, attempts int, pause time.Duration, transient func(error) bool, do func() error) error {
	for n := 1; ; n++ {
		err := do()
		switch {
		case err == nil || ctx.Err() != nil || !transient(err):
			return err
		case n >= attempts:
			return fmt.Errorf("after %d attempts: %w", n, err)
		}
		if cause := Sleep(ctx, pause); cause != nil {
			return cause
		}
		pause *= 2
	}
}
