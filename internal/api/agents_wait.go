package api

import (
	"context"
	"sync"
)

// waiting wakes the idle agents whose machine has changed, so that a claim reaches them at once and nobody polls.
type waiting struct {
	mu  sync.Mutex
	ons map[string]chan struct{} // guarded by mu; by machine; closed at its next change
}

// on gives a channel that is closed when the machine next changes.
func (w *waiting) on(machine string) <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ons == nil {
		w.ons = map[string]chan struct{}{}
	}
	ch, ok := w.ons[machine]
	if !ok {
		ch = make(chan struct{})
		w.ons[machine] = ch
	}
	return ch
}

func (w *waiting) wake(machine string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if ch, ok := w.ons[machine]; ok {
		close(ch)
		delete(w.ons, machine)
	}
}

func (w *waiting) wakeAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for machine, ch := range w.ons {
		close(ch)
		delete(w.ons, machine)
	}
}

// Run wakes agents until ctx ends.
func (h *Handler) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := h.wakeChanged(ctx); ctx.Err() == nil {
			h.Log.Warn("the change feed broke; waking every agent that waits", "error", err)
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
