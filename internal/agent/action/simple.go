package action

import (
	"context"
	"time"

	"github.com/trivet-project/trivet/internal/actionspec"
)

// noop waits for the duration of its argument.
func noop(ctx context.Context, s *actionspec.Noop) error {
	if s.Sleep <= 0 {
		return nil
	}
	t := time.NewTimer(s.Sleep.D())
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
