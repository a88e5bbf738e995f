package limit

import (
	"container/list"
	"net/netip"
)

// maxRequests bounds what one unknown caller does at the same time by one entry: the streams of HTTP/2.
const maxRequests = 8

// Entry is one thing that a caller holds. Its methods may be called on nil, which has no limits.
type Entry struct {
	set   *Set
	key   netip.Addr
	evict func()

	// The following are guarded by set.mu.
	caller  *caller
	known   bool
	gone    bool // it left, or was replaced
	running int  // requests
	number  int  // of its wait, in the order of all
	place   *list.Element
}

// Recognise notes that the caller is known. Where the share of known callers is used up, the entry remains one of an
// unknown caller.
func (e *Entry) Recognise() {
	if e == nil {
		return
	}
	s := e.set
	s.limits.Rate.Recognise(e.key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.known || e.gone || !s.hasSpaceForKnown(e.caller) {
		return
	}
	e.stopWaiting()
	e.known = true
	s.unknown--
	s.known++
	e.caller.unknown--
	e.caller.known++
}

// Begin notes that a request is served. It returns false, and End must not follow, if an unknown caller has too many
// requests at the same time.
func (e *Entry) Begin() bool {
	if e == nil {
		return true
	}
	e.set.mu.Lock()
	defer e.set.mu.Unlock()
	if !e.known && !e.caller.shared && e.running >= maxRequests {
		return false
	}
	e.running++
	if e.set.limits.KeepBusy {
		e.stopWaiting()
	}
	return true
}

// End notes that a request was served.
func (e *Entry) End() {
	if e == nil {
		return
	}
	e.set.mu.Lock()
	defer e.set.mu.Unlock()
	if e.running--; e.running == 0 && !e.known && !e.gone {
		e.stopWaiting()
		e.wait()
	}
}

// Leave removes the entry. It may be called again.
func (e *Entry) Leave() {
	if e == nil {
		return
	}
	e.set.mu.Lock()
	defer e.set.mu.Unlock()
	if !e.gone {
		e.set.remove(e)
	}
}

// Address returns the address that limits apply to, for a [Pool]; it is not valid where the address is shared.
func (e *Entry) Address() netip.Addr {
	if e == nil {
		return netip.Addr{}
	}
	e.set.mu.Lock()
	defer e.set.mu.Unlock()
	if e.caller.shared {
		return netip.Addr{}
	}
	return e.key
}

// IsShared reports whether the address is that of many callers.
func (e *Entry) IsShared() bool {
	if e == nil {
		return false
	}
	e.set.mu.Lock()
	defer e.set.mu.Unlock()
	return e.caller.shared
}

// wait includes the entry in those that may be replaced. set.mu is held.
func (e *Entry) wait() {
	e.set.waits++
	e.number = e.set.waits
	e.place = e.caller.waiting.PushBack(e)
}

// stopWaiting excludes the entry from those that may be replaced. set.mu is held.
func (e *Entry) stopWaiting() {
	if e.place != nil {
		e.caller.waiting.Remove(e.place)
		e.place = nil
	}
}
