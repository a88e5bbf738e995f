package cli

import (
	"context"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
)

// Signals are those that end the program: SIGINT and SIGTERM.
type Signals struct {
	received chan os.Signal
	editor   atomic.Bool // one runs
}

// NotifySignals returns a context that ends with the first signal. A second signal exits the program at once.
func NotifySignals() (context.Context, *Signals) {
	ctx, stop := context.WithCancel(context.Background())
	s := &Signals{received: make(chan os.Signal, 2)}
	signal.Notify(s.received, os.Interrupt, syscall.SIGTERM)
	go func() {
		s.next()
		stop()
		if second, ok := s.next().(syscall.Signal); ok {
			os.Exit(128 + int(second)) // the exit status of a shell
		}
	}()
	return ctx, s
}

// next waits for a signal that is for this program.
func (s *Signals) next() os.Signal {
	for {
		if got := <-s.received; got != os.Interrupt || !s.editor.Load() {
			return got
		}
	}
}

// inEditor runs a function that runs an editor. Ctrl-C, which the terminal sends to both programs, is for the editor
// meanwhile. It is not ignored by [signal.Ignore], as the editor would inherit that.
func (s *Signals) inEditor(run func()) {
	if s != nil {
		s.editor.Store(true)
		defer s.editor.Store(false)
	}
	run()
}
