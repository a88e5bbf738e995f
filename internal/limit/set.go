package limit

import (
	"container/list"
	"net/netip"
	"sync"
)

// Limits are those of a Set, in entries. All must be above 0.
type Limits struct {
	Unknown    int // of callers that are not recognised
	PerAddress int // of these, for one address

	Known           int // of recognised callers; one above it counts as unknown
	KnownPerAddress int // of these, for one address

	// KeepBusy keeps an unknown caller's entry while a request is served, such as a download. Without it, one that
	// sends its request slowly can be replaced.
	KeepBusy bool

	// Rate bounds how often an unknown address may enter; nil: there is no such bound.
	Rate *Rate

	// Class returns the class of an address; nil: all are Anyone. It must be fast.
	Class func(netip.Addr) Class

	// Exceeded is called when an address asked for more than there is; optional. It must be fast.
	Exceeded func(netip.Addr)
}

// Set counts what callers hold open. It is safe for concurrent use.
type Set struct {
	limits Limits

	mu      sync.Mutex // guards following, and the fields of entries and callers
	unknown int
	known   int
	refused int
	evicted int
	limited int // by Rate
	waits   int // how often an entry began to wait
	callers map[netip.Addr]*caller
}

// caller is an address that has entries.
type caller struct {
	shared         bool
	unknown, known int
	waiting        list.List // of *Entry: the unknown ones that may be replaced; the front has waited longest
}

// NewSet returns an empty set.
func NewSet(l Limits) *Set {
	if l.Class == nil {
		l.Class = func(netip.Addr) Class { return Anyone }
	}
	return &Set{limits: l, callers: map[netip.Addr]*caller{}}
}

// Enter adds an entry of an address; it returns nil if there is no space. evict ends the entry when another one needs
// its space; Leave need not be called then. It is called at most once, and must not wait.
func (s *Set) Enter(addr netip.Addr, evict func()) *Entry {
	class := s.limits.Class(addr.Unmap())
	e := &Entry{set: s, key: keyOf(addr), evict: evict}
	allowed := class != Anyone || s.limits.Rate.Allow(addr)
	s.mu.Lock()
	victim, ok := (*Entry)(nil), false
	if allowed {
		victim, ok = s.admit(e, class)
	} else {
		s.limited++
	}
	s.mu.Unlock()
	if victim != nil {
		victim.evict()
	}
	if (victim != nil || !ok) && s.limits.Exceeded != nil {
		s.limits.Exceeded(addr)
	}
	if !ok {
		return nil
	}
	return e
}

// admit adds an entry and removes the one that it replaces. s.mu is held.
func (s *Set) admit(e *Entry, class Class) (victim *Entry, ok bool) {
	c := s.callers[e.key]
	if c == nil {
		c = &caller{}
	}
	c.shared = class == Shared
	if class == Trusted && s.hasSpaceForKnown(c) {
		s.callers[e.key], e.caller, e.known = c, c, true
		c.known++
		s.known++
		return nil, true
	}
	victim, ok = s.makeSpace(c)
	if !ok {
		s.refused++
		return nil, false
	}
	if victim != nil {
		s.evicted++
		s.remove(victim)
	}
	s.callers[e.key], e.caller = c, c
	c.unknown++
	s.unknown++
	e.wait()
	return victim, true
}

// makeSpace reports whether a caller may have one more unknown entry, and returns the one that this replaces. s.mu is
// held.
func (s *Set) makeSpace(c *caller) (victim *Entry, ok bool) {
	switch {
	case !c.shared && c.unknown >= s.limits.PerAddress:
	case s.unknown >= s.limits.Unknown:
		c = s.largest()
	default:
		return nil, true
	}
	if c == nil || c.waiting.Len() == 0 {
		return nil, false
	}
	return c.oldest(), true
}

// largest returns the address with most entries that wait; of several, the one whose entry has waited longest. A shared
// one is many callers. s.mu is held.
func (s *Set) largest() (found *caller) {
	most := 0
	for _, c := range s.callers {
		n := c.waiting.Len()
		if c.shared && n > 0 {
			n = n/s.limits.PerAddress + 1
		}
		if n > most || n > 0 && n == most && c.oldest().number < found.oldest().number {
			found, most = c, n
		}
	}
	return found
}

// oldest returns the entry that has waited longest; there is one.
func (c *caller) oldest() *Entry { return c.waiting.Front().Value.(*Entry) }

func (s *Set) hasSpaceForKnown(c *caller) bool {
	return s.known < s.limits.Known && (c.shared || c.known < s.limits.KnownPerAddress)
}

// remove removes an entry. s.mu is held.
func (s *Set) remove(e *Entry) {
	e.gone = true
	e.stopWaiting()
	if e.known {
		s.known--
		e.caller.known--
	} else {
		s.unknown--
		e.caller.unknown--
	}
	if e.caller.known+e.caller.unknown == 0 {
		delete(s.callers, e.key)
	}
}

// Stats are the numbers of a set's entries, and of what was refused and replaced since its creation.
type Stats struct {
	Unknown, Known, Refused, Evicted int
	Limited                          int // refused, as their address entered too often
}

// Stats returns the present numbers.
func (s *Set) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Stats{Unknown: s.unknown, Known: s.known, Refused: s.refused, Evicted: s.evicted, Limited: s.limited}
}
