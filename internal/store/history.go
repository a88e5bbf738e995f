package store

import (
	"slices"
	"sort"
	"sync"
)

// history holds the newest events for all watchers. They share it and have no buffers, so a slow watcher blocks
// nothing. Older events are read from etcd.
type history struct {
	mu      sync.Mutex
	rev     int64                 // guarded by mu, as all below; everything up to here was added
	events  []*Event              // by revision
	bytes   int                   // of events
	start   int64                 // events up to here are not known
	evicted map[string]int64      // by kind: the revision of its newest evicted event
	waiting map[*Watcher]struct{} // blocked in Next
}

// Limits of the history.
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
		h.bytes += e.Bytes()
	}
	h.evict()
	for w := range h.waiting {
		if slices.ContainsFunc(events, func(e *Event) bool { return w.wants(e.part) }) {
			delete(h.waiting, w)
			w.notify()
		}
	}
}

func (h *history) evict() {
	n := 0
	for n < len(h.events) && (len(h.events)-n > historyEvents || h.bytes > historyBytes) {
		e := h.events[n]
		h.evicted[e.part] = e.Revision
		h.bytes -= e.Bytes()
		h.events[n] = nil
		n++
	}
	h.events = h.events[n:]
}

// reset drops all events: the feed restarts at a revision.
func (h *history) reset(rev int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.rev, h.start, h.events, h.bytes = rev, rev, nil, 0
	clear(h.evicted)
	for w := range h.waiting {
		w.notify()
	}
	clear(h.waiting)
}

// after returns the events for w after a revision, in whole revisions, and the revision up to which they are
// complete. ok is false if some of them were evicted. If there are none yet, w is notified when there are.
func (h *history) after(w *Watcher, rev int64) (events []*Event, upTo int64, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.has(w, rev) {
		return nil, 0, false
	}
	at := sort.Search(len(h.events), func(i int) bool { return h.events[i].Revision > rev })
	used := 0
	for _, e := range h.events[at:] {
		if n := len(events); w.enough(events, used) && e.Revision != events[n-1].Revision {
			return events, events[n-1].Revision, true
		}
		if w.wants(e.part) {
			events, used = append(events, e), used+e.Bytes()
		}
	}
	if len(events) == 0 {
		h.waiting[w] = struct{}{}
	}
	return events, max(rev, h.rev), true
}

// has reports whether all events for w after a revision are held. mu is held.
func (h *history) has(w *Watcher, after int64) bool {
	if after < h.start {
		return false
	}
	for kind, rev := range h.evicted {
		if rev > after && w.wants(kind) {
			return false
		}
	}
	return true
}

// remove removes w from the waiting watchers.
func (h *history) remove(w *Watcher) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.waiting, w)
	select {
	case <-w.wake:
	default:
	}
}
