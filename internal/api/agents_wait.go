package api

import (
	"context"
	"sync"
	"time"

	"github.com/trivet-project/trivet/internal/uptime"
)

// waiting wakes the idle agents whose machine has changed, so that a claim reaches them at once without polling.
type waiting struct {
	mu      sync.Mutex
	changes map[string]chan struct{} // guarded by mu; by machine; closed at its next change
}

// on returns a channel that is closed when the machine next changes.
func (w *waiting) on(machine string) <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.changes == nil {
		w.changes = map[string]chan struct{}{}
	}
	ch, ok := w.changes[machine]
	if !ok {
		ch = make(chan struct{})
		w.changes[machine] = ch
	}
	return ch
}

func (w *waiting) wake(machine string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if ch, ok := w.changes[machine]; ok {
		close(ch)
		delete(w.changes, machine)
	}
}

func (w *waiting) wakeAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for machine, ch := range w.changes {
		close(ch)
		delete(w.changes, machine)
	}
}

// Run wakes agents until ctx ends.
func (h *Handler) Run(ctx context.Context) error {
	var refusing sync.WaitGroup
	defer refusing.Wait()
	refusing.Go(func() { h.wakeRefused(ctx) })
	for ctx.Err() == nil {
		if err := h.wakeChanged(ctx); ctx.Err() == nil {
			h.Log.Warn("the change feed was interrupted; waking all waiting agents", "error", err)
		}
		h.waiting.wakeAll()
	}
	return nil
}

func (h *Handler) wakeChanged(ctx context.Context) error {
	feed := h.Fleet.Store.Watch(0, "Machine")
	for {
		events, err := feed.Next(ctx)
		if err != nil {
			return err
		}
		for _, e := range events {
			h.waiting.wake(e.Name)
		}
	}
}

// wakeRefused wakes all waiting agents while they must use another head.
func (h *Handler) wakeRefused(ctx context.Context) {
	tick := time.NewTicker(uptime.Interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if h.Presence.Listening() != nil {
			h.waiting.wakeAll()
		}
	}
}
