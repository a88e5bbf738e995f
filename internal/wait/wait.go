// Package wait has helpers for delays.
package wait

import (
	"context"
	"math/rand/v2"
	"time"
)

// Sleep waits for d and returns nil, or returns the cause of ctx when it ends first.
func Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Jitter returns a random duration between half of d and d, so that many clients do not retry at the same time.
func Jitter(d time.Duration) time.Duration { return d/2 + rand.N(d/2+1) }
