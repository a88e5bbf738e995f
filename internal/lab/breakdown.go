package lab

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"sync"
	"time"

	"github.com/trivet-project/trivet/internal/agent/action"
	"github.com/trivet-project/trivet/internal/lab/grade"
	"github.com/trivet-project/trivet/internal/wait"
)

// reportTime is how long a machine goes on before it stops silently, so that what it has done is reported.
const reportTime = 2 * time.Second

// breakdown is what is wrong with a simulated machine: it gets no further than one step. A nil one is nothing.
type breakdown struct {
	step string
	mode grade.Mode // of an action; a machine that is at a boot step stops
	once bool       // it works from the second time on

	mu   sync.Mutex
	seen bool // guarded by mu; it has shown
}

// shows reports whether the breakdown shows at a step.
func (b *breakdown) shows(step string) bool {
	if b == nil || b.step != step {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.once && b.seen {
		return false
	}
	b.seen = true
	return true
}

// halts reports whether the machine stops at a boot step. It returns true when the machine is powered off.
func (b *breakdown) halts(ctx context.Context, step string) bool {
	if !b.shows(step) {
		return false
	}
	<-ctx.Done()
	return true
}

// wrap returns what performs the actions of a machine that breaks down. freeze stops its agent.
func (b *breakdown) wrap(m *Machine, do Doer, freeze func()) Doer {
	return func(ctx context.Context, at *action.Attempt) error {
		if !b.shows(at.Action.Name) {
			return do(ctx, at)
		}
		switch b.mode {
		case grade.Error:
			if err := os.Remove(m.disk()); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			err := do(ctx, at)
			if b.once {
				err = errors.Join(err, m.makeDisks())
			}
			return err
		case grade.Silent:
			_ = wait.Sleep(ctx, reportTime)
			freeze()
		}
		<-ctx.Done()
		return ctx.Err()
	}
}
