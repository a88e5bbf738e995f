package installer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/agent/action"
)

// Bounds of what a report says to people, in bytes.
const (
	maxCause = 1024
	maxNote  = 200
)

// attempt is one try of an action while it runs.
type attempt struct {
	work *work
	act  *trivet.Action
	log  io.Writer

	try int

	mu     sync.Mutex // guards following
	report trivet.Report
}

// do runs the action and waits for its end, or for deathTimeout after its time is up.
func (t *attempt) do() (stuck bool, err error) {
	timeout := t.act.Timeout
	if timeout <= 0 {
		timeout = trivet.DefaultActionTimeout
	}
	ctx, cancel := context.WithTimeout(t.work.ctx, timeout.D())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- t.call(ctx) }()
	select {
	case err = <-ended:
	case <-ctx.Done():
		select {
		case err = <-ended:
		case <-time.After(deathTimeout):
			return true, &action.Failure{Fault: trivet.FaultMachine, Final: true,
				Err: fmt.Errorf("did not end within %s of being told to; the machine must boot anew", deathTimeout)}
		}
	}
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return false, timedOut(err, timeout)
	}
	return false, err
}

// timedOut keeps the fault of an action that knows what it was waiting for; else a machine that hangs is at fault.
func timedOut(err error, timeout trivet.Duration) error {
	f := &action.Failure{Fault: trivet.FaultMachine}
	if !errors.As(err, &f) {
		return &action.Failure{Fault: f.Fault, Err: fmt.Errorf("timed out after %s", timeout)}
	}
	return &action.Failure{Fault: f.Fault, Err: fmt.Errorf("timed out after %s: %w", timeout, f.Err)}
}

// call creates a panic a failed try.
func (t *attempt) call(ctx context.Context) (err error) {
	defer func() {
		if p := recover(); p != nil {
			fmt.Fprintf(t.log, "panic: %v\n%s", p, debug.Stack())
			err = &action.Failure{Fault: trivet.FaultControlPlane, Err: fmt.Errorf("the agent panicked: %v", p)}
		}
	}()
	return t.work.agent.Do(ctx, &action.Attempt{
		Run: t.work.run, Action: *t.act, Try: t.try, Log: t.log,
		Progress: t.progress, Note: t.note, Blobs: t.work.agent.blobURLs,
	})
}

func (t *attempt) progress(done, total int64, unit string) {
	t.work.progress.Store(&trivet.Progress{Action: t.act.Name, Done: done, Total: total, Unit: unit})
}

func (t *attempt) note(text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.report.Note = clip(text, maxNote)
}

// end returns the report of how it ended, which is the attempt's last word.
func (t *attempt) end(err error, elapsed time.Duration) trivet.Report {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := &t.report
	r.State, r.Elapsed = trivet.StepDone, trivet.Duration(elapsed)
	if err != nil {
		f := &action.Failure{Fault: trivet.FaultMachine}
		errors.As(err, &f)
		r.State, r.Cause, r.Fault, r.Final = trivet.StepFailed, clip(err.Error(), maxCause), f.Fault, f.Final
		fmt.Fprintf(t.log, "trivet: failed: %s\n", r.Cause)
	}
	return *r
}

// clip bounds a text for people and makes it UTF-8.
func clip(s string, limit int) string {
	if len(s) <= limit {
		return strings.ToValidUTF8(s, "?")
	}
	return strings.ToValidUTF8(s[:limit], "") + "..."
}
