package installer

import (
	"context"
	"sync"
)

// gate is closed while the run is paused: no attempt begins.
type gate struct {
	mu sync.Mutex // guards following
	// opened is closed when the run is resumed; nil while it is not paused.
	opened chan struct{}
	held   bool // an attempt waits
}

// set closes or opens the gate, and reports whether that changed it.
func (g *gate) set(paused bool) (changed bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case paused == (g.opened != nil):
		return false
	case paused:
		g.opened = make(chan struct{})
	default:
		close(g.opened)
		g.opened, g.held = nil, false
	}
	return true
}

// holds reports whether an attempt waits at the gate: nothing of the run is in progress.
func (g *gate) holds() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.held
}

// enter returns what to wait for before an attempt; nil: nothing.
func (g *gate) enter() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.held = g.opened != nil
	return g.opened
}

// awaitResume returns once the run is not paused.
func (w *work) awaitResume() error {
	for {
		opened := w.gate.enter()
		if opened == nil {
			return nil
		}
		w.agent.Log.Info("the run is paused", "epoch", w.epoch)
		signal(w.reported) // the next sync waits at a head for the end of the pause
		select {
		case <-opened:
		case <-w.ctx.Done():
			return context.Cause(w.ctx)
		}
	}
}

// setPaused follows what a head says about the run that the agent holds. It is saved for the next process, which may
// find no head.
func (a *agent) setPaused(paused bool) {
	if a.work == nil || !a.work.gate.set(paused) {
		return
	}
	a.granted.Paused = paused
	a.saveState(a.granted)
	if !paused {
		a.Log.Info("the run is resumed", "epoch", a.epoch)
	}
}
