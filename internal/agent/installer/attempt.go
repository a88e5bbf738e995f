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

// Limits of the texts of a report, in bytes.
const (
	maxCause = 1024
	maxNote  = 200
)

// attempt is one attempt of an action while it runs.
type attempt struct {
	work *work
	act  *trivet.Action
	log  io.Writer

	number int

	mu     sync.Mutex // guards following
	report trivet.Report
}

// do runs the action and waits for its end, at most killTimeout after its deadline.
func (t *attempt) do() (stuck bool, err error) {
	ctx, cancel := context.WithTimeout(t.work.ctx, t.act.TimeoutOrDefault().D())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- t.call(ctx) }()
	select {
	case err = <-ended:
	case <-ctx.Done():
		select {
		case err = <-ended:
		case <-time.After(killTimeout):
			return true, &action.Failure{Fault: trivet.FaultMachine, Final: true,
				Err: fmt.Errorf("did not end within %s after it was cancelled; the machine must reboot", killTimeout)}
		}
	}
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return false, timedOut(err, t.act.TimeoutOrDefault())
	}
	return false, err
}

// timedOut keeps the fault that the action returned; without one it is the machine's.
func timedOut(err error, timeout trivet.Duration) error {
	f := &action.Failure{Fault: trivet.FaultMachine}
	if !errors.As(err, &f) {
		return &action.Failure{Fault: f.Fault, Err: fmt.Errorf("timed out after %s", timeout)}
	}
	return &action.Failure{Fault: f.Fault, Err: fmt.Errorf("timed out after %s: %w", timeout, f.Err)}
}

// call runs the action and converts a panic to a failed attempt.
func (t *attempt) call(ctx context.Context) (err error) {
	defer func() {
		if p := recover(); p != nil {
			fmt.Fprintf(t.log, "panic: %v\n%s", p, debug.Stack())
			err = &action.Failure{Fault: trivet.FaultControlPlane, Err: fmt.Errorf("the agent panicked: %v", p)}
		}
	}()
	return t.work.agent.Do(ctx, &action.Attempt{
		Run: t.work.run, Action: *t.act, Number: t.number, Log: t.log,
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

// end returns the attempt's last report.
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

// clip limits a text and makes it valid UTF-8.
func clip(s string, limit int) string {
	if len(s) <= limit {
		return strings.ToValidUTF8(s, "?")
	}
	return strings.ToValidUTF8(s[:limit], "") + "..."
}
