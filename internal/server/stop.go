package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/trivet-project/trivet"
)

// stopTimeout bounds how long the parts of a head take to end, after those drains that are part of it. It is less than
// what service managers wait before they kill a program.
const stopTimeout = 30 * time.Second

// ErrStuck is the error of a head whose parts have not ended in time. Its program must exit: nothing is lost by that,
// as by a kill.
var ErrStuck = errors.New("a part of this head did not end")

// Run serves until ctx ends or a part fails, and then lets requests end in order. A part that does not end cannot keep
// the head from stopping: Run then fails with ErrStuck.
func (s *Server) Run(ctx context.Context) error {
	ctx, s.restart = context.WithCancelCause(ctx)
	defer s.restart(nil)
	err := endInTime(ctx, s.cfg.Drain+stopTimeout, func() error { return s.run(ctx) })
	if err == nil && errors.Is(context.Cause(ctx), ErrRestart) {
		err = ErrRestart
	}
	return explainDisk(err, s.cfg.Dir, s.name())
}

// Close releases what New has opened. Run must have returned. It fails with ErrStuck where that takes too long.
func (s *Server) Close() error {
	now, cancel := context.WithCancel(context.Background())
	cancel()
	return endInTime(now, stopTimeout, func() error { s.close(); return nil })
}

// endInTime runs a function to its end, but returns ErrStuck if that is later than limit after the end of ctx.
func endInTime(ctx context.Context, limit time.Duration, run func() error) error {
	ended := make(chan error, 1)
	go func() { ended <- run() }() // what is stuck ends with the program
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case err := <-ended:
		return err
	case <-timer.C:
		return fmt.Errorf("stop: %w: %w within %s", trivet.ErrUnavailable, ErrStuck, limit)
	}
}
