package store

import (
	"slices"
	"sort"
	"sync"
)

// history holds the newest events, for all watchers: they share it and have no buffers of their own, so that a slow one
// holds up nobody. What is no longer held is had from etcd.
type history struct {
	mu      sync.Mutex
	rev     int64                 // guarded by mu, like all that follow; everything up to here was told
	events  []*Event              // by revision
	bytes   int                   // of events
	floor   int64                 // nothing is known of what happened up to here
	evicted map[string]int64      // by kind: the revision of its newest event that is no longer held
	waiting map[*Watcher]struct{} // in Next
}

// What the history holds.
const (
	historyEvents = 8192
	historyBytes  = 16 << 20
)

func (h *history) add(rev int64, events []*Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.rev = rev
	for _, e := range events {
		h.events = append(h.events, e)
		h.bytes += e.bytes()
	}
	h.evict()
	for w := range h.waiting {
		if slices.ContainsFunc(events, func(e *Event) bool { return w.wants(e.part) }) {
			delete(h.waiting, w)
			w.poke()
		}
	}
}

func (h *history) evict() {
	n := 0
	for n < len(h.events) && (len(h.events)-n > historyEvents || h.bytes > historyBytes) {
		e := h.events[n]
		h.evicted[e.part] = e.Revision
		h.bytes -= e.bytes()
		h.events[n] = nil
		n++
	}
	h.events = h.events[n:]
}

// reset forgets everything: the feed begins anew at a revision.
func (h *history) reset(rev int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.rev, h.floor, h.events, h.bytes = rev, rev, nil, 0
	clear(h.evicted)
	for w := range h.waiting {
		w.poke()
	}
	clear(h.waiting)
}

// after gives what w wants after a revision: some whole revisions, and the revision up to which that is everything. Where the
// history does not hold it, ok is false. Where there is nothing yet, w is woken later.
func (h *history) after(w *Watcher, rev int64) (events []*Event, upTo int64, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.holds(w, rev) {
		return nil, 0, false
	}
	at := sort.Search(len(h.events), func(i int) bool { return h.events[i].Revision > rev })
	for _, e := range h.events[at:] {
		if n := len(events); n >= batchEvents && e.Revision != events[n-1].Revision {
			return events, events[n-1].Revision, true
		}
		if w.wants(e.part) {
			events = append(events, e)
		}
	}
	if len(events) == 0 {
		h.waiting[w] = struct{}{}
	}
	return events, max(rev, h.rev), true
}

// holds says whether everything that w wants after a revision is held. mu is held.
func (h *history) holds(w *Watcher, after int64) bool {
	if after < h.floor {
		return false
	}
	for kind, rev := range h.evicted {
		if rev > after && w.wants(kind) {
			return false
		}
	}
	return true
}

// leave takes w out of those that are woken.
func (h *history) leave(w *Watcher) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.waiting, w)
	select {
	case <-w.wake:
	default:
	}
}
