package limit

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

var (
	hostile = netip.MustParseAddr("10.0.0.1")
	honest  = netip.MustParseAddr("10.0.0.2")
)

// ended records which entries were replaced.
type ended []string

func (e *ended) entry(s *Set, name string, addr netip.Addr) *Entry {
	return s.Enter(addr, func() { *e = append(*e, name) })
}

func (e *ended) want(t *testing.T, names ...string) {
	t.Helper()
	if !slices.Equal(*e, names) {
		t.Errorf("replaced %q, want %q", *e, names)
	}
	*e = nil
}

// One address that is at its limit replaces its own oldest entry, not those of others.
func TestPerAddress(t *testing.T) {
	s, out := NewSet(Limits{Unknown: 100, PerAddress: 2, Known: 1, KnownPerAddress: 1}), ended{}
	out.entry(s, "other", honest)
	for i := range 4 {
		out.entry(s, fmt.Sprint(i), hostile)
	}
	out.want(t, "0", "1")
	if got := s.Stats(); got != (Stats{Unknown: 3, Evicted: 2}) {
		t.Errorf("%+v", got)
	}
}

// At the limit in total the address with most entries loses its oldest; others lose none.
func TestTotal(t *testing.T) {
	s, out := NewSet(Limits{Unknown: 3, PerAddress: 3, Known: 1, KnownPerAddress: 1}), ended{}
	out.entry(s, "other", netip.MustParseAddr("10.0.0.3"))
	out.entry(s, "first", hostile)
	out.entry(s, "second", hostile)
	out.entry(s, "honest", honest)
	out.want(t, "first")
}

// What is in use is kept; a new entry is refused where nothing else can be replaced.
func TestKeepBusy(t *testing.T) {
	s, out := NewSet(Limits{Unknown: 2, PerAddress: 2, Known: 1, KnownPerAddress: 1, KeepBusy: true}), ended{}
	a, b := out.entry(s, "a", hostile), out.entry(s, "b", hostile)
	a.Begin()
	b.Begin()
	if e := out.entry(s, "c", honest); e != nil {
		t.Error("entered a set without space")
	}
	a.End()
	if e := out.entry(s, "d", honest); e == nil {
		t.Error("refused though one waits")
	}
	out.want(t, "a")
}

// A caller that sends its request slowly is replaced where busy entries are not kept.
func TestBusyIsReplaced(t *testing.T) {
	s, out := NewSet(Limits{Unknown: 1, PerAddress: 1, Known: 1, KnownPerAddress: 1}), ended{}
	a := out.entry(s, "a", hostile)
	a.Begin()
	out.entry(s, "b", honest)
	a.End()
	a.Leave()
	out.want(t, "a")
	if got := s.Stats(); got != (Stats{Unknown: 1, Evicted: 1}) {
		t.Errorf("%+v", got)
	}
}

// A recognised caller keeps its entry whatever unknown callers do; what is above its share is not protected.
func TestRecognised(t *testing.T) {
	s, out := NewSet(Limits{Unknown: 2, PerAddress: 2, Known: 2, KnownPerAddress: 1}), ended{}
	known := out.entry(s, "known", honest)
	known.Recognise()
	known.Recognise()
	second := out.entry(s, "second", honest)
	second.Recognise()
	if !known.known || second.known {
		t.Error("one entry of the address may be recognised, and is not")
	}
	for i := range 3 {
		out.entry(s, fmt.Sprint(i), hostile)
	}
	out.want(t, "second", "0")
	if got := s.Stats(); got != (Stats{Unknown: 2, Known: 1, Evicted: 2}) {
		t.Errorf("%+v", got)
	}
	known.Leave()
	known.Leave()
	if got := s.Stats(); got.Known != 0 {
		t.Errorf("%+v", got)
	}
}

// An address of many callers has no limit of its own; a trusted one is recognised from the start.
func TestClasses(t *testing.T) {
	class := func(a netip.Addr) Class {
		return map[netip.Addr]Class{honest: Shared, netip.MustParseAddr("10.0.0.9"): Trusted}[a]
	}
	s, out := NewSet(Limits{Unknown: 4, PerAddress: 1, Known: 1, KnownPerAddress: 1, Class: class}), ended{}
	for i := range 4 {
		out.entry(s, fmt.Sprint(i), honest)
	}
	peer := out.entry(s, "peer", netip.MustParseAddr("::ffff:10.0.0.9"))
	out.want(t)
	if !peer.known || !peer.Address().IsValid() {
		t.Error("the trusted address is not recognised")
	}
	if e := out.entry(s, "5", honest); e.Address().IsValid() {
		t.Error("a shared address has a limit")
	}
	out.want(t, "0")
}

// The streams of one connection of an unknown caller are limited, those of a recognised one are not.
func TestRequests(t *testing.T) {
	s := NewSet(Limits{Unknown: 1, PerAddress: 1, Known: 1, KnownPerAddress: 1})
	e := s.Enter(honest, func() {})
	for i := range maxRequests {
		if !e.Begin() {
			t.Fatalf("request %d is refused", i)
		}
	}
	if e.Begin() {
		t.Error("one too many is served")
	}
	e.Recognise()
	if !e.Begin() {
		t.Error("a recognised caller is refused")
	}
}

// An IPv6 host counts as one address with all others of its network.
func TestKeyOf(t *testing.T) {
	for text, want := range map[string]string{"2001:db8::1:2:3:4": "2001:db8::", "::ffff:10.0.0.1": "10.0.0.1",
		"10.0.0.1": "10.0.0.1", "fe80::1%eth0": "fe80::"} {
		if got := keyOf(netip.MustParseAddr(text)); got != netip.MustParseAddr(want) {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
	if keyOf(netip.Addr{}).IsValid() {
		t.Error("no address has a key")
	}
}

func TestPool(t *testing.T) {
	p := NewPool(10, 6)
	back := p.Take(hostile, 5)
	if back == nil || p.Take(hostile, 2) != nil || p.Take(honest, 6) != nil {
		t.Error("limits of an address or in total are not kept")
	}
	if p.Take(netip.Addr{}, 5) == nil {
		t.Error("refused what is left")
	}
	back()
	back()
	if p.Take(hostile, 5) == nil || p.Take(hostile, 1) != nil {
		t.Error("what was given back is not there, or twice")
	}
}

// Whatever callers do, the numbers are within the limits and add up.
func TestNumbersAddUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limits := Limits{Unknown: 4, PerAddress: 2, Known: 3, KnownPerAddress: 2,
			KeepBusy: rapid.Bool().Draw(t, "keep busy")}
		s := NewSet(limits)
		open := map[*Entry]int{}
		for range 40 {
			addr := netip.AddrFrom4([4]byte{10, 0, 0, rapid.ByteMax(3).Draw(t, "address")})
			var e *Entry
			if e = s.Enter(addr, func() { delete(open, e) }); e != nil {
				open[e] = 0
			}
			for e := range open {
				act(t, e, open)
			}
			known := 0
			for e := range open {
				if e.known {
					known++
				}
			}
			got := s.Stats()
			if got.Known != known || got.Unknown != len(open)-known || got.Unknown > limits.Unknown ||
				got.Known > limits.Known {
				t.Fatalf("%+v with %d open, %d known", got, len(open), known)
			}
		}
		for e := range open {
			e.Leave()
		}
		if got := s.Stats(); got.Known+got.Unknown+len(s.callers) != 0 {
			t.Fatalf("%+v after all left", got)
		}
	})
}

// act does something with an entry, whose running requests open counts.
func act(t *rapid.T, e *Entry, open map[*Entry]int) {
	switch rapid.IntRange(0, 5).Draw(t, "act") {
	case 0:
		e.Recognise()
	case 1:
		e.Leave()
		delete(open, e)
	case 2:
		if e.Begin() {
			open[e]++
		}
	case 3:
		if open[e] > 0 {
			open[e]--
			e.End()
		}
	}
}
