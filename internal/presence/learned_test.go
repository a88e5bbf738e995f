package presence

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// count returns how many heartbeats the pages have. None has more than pageSize.
func (h *head) count(pages []page) (n int) {
	h.Helper()
	for _, p := range pages {
		if len(p.Heartbeats) > pageSize {
			h.Errorf("a page has %d heartbeats", len(p.Heartbeats))
		}
		n += len(p.Heartbeats)
	}
	return n
}

func (h *head) exchanged(what string, pages []page, want int) {
	h.Helper()
	if got := h.count(pages); got != want {
		h.Errorf("%s: %d heartbeats in %d pages, want %d", what, got, len(pages), want)
	}
}

// Heads exchange what they learned since the last time, in pages, and all only after a restart. What a head learned from
// another one is not sent back to it.
func TestExchangeIsWhatIsNew(t *testing.T) {
	const agents = 3*pageSize + 7
	synctest.Test(t, func(t *testing.T) {
		a, b := newHead(t, "b"), newHead(t, "a")
		a.name, b.name = "a", "b"
		for i := range agents {
			b.Record(fmt.Sprint("m", i), 1, nil)
		}
		pass(time.Second, a, b)
		a.exchanged("at the start", a.ask(b, "b"), agents)
		b.exchanged("back", b.ask(a, "a"), agents) // at its start it may have forgotten them
		for range 5 {
			b.Record("m1", 1, nil)
			b.Record("m2", 1, nil)
			b.Record("m1", 1, nil)
			a.Record("m3", 1, nil)
			pass(time.Second, a, b)
			a.exchanged("two heartbeats of one agent, and one of another", a.ask(b, "b"), 2)
			b.exchanged("one", b.ask(a, "a"), 1)
		}
		a.exchanged("nothing new", a.ask(b, "b"), 0)
		b.exchanged("nothing new", b.ask(a, "a"), 0)

		restarted := newHead(t, "b")
		restarted.name = "a"
		restarted.exchanged("after its restart", restarted.ask(b, "b"), agents)
		pass(time.Second, b, restarted)
		b.exchanged("from a head that was restarted", b.ask(restarted, "a"), 0) // it has it all from b
		if got := restarted.Silence("m9", 1); got < time.Second {
			t.Errorf("silent for %s", got)
		}
	})
}

// A head that did not answer all pages has not reported until now, and continues where it was.
func TestInterruptedExchange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newHead(t, "b"), newHead(t, "a")
		a.name, b.name = "a", "b"
		b.Record("m1", 1, nil)
		a.ask(b, "b")
		pass(time.Second, a, b)
		for i := range 2 * pageSize {
			b.Record(fmt.Sprint("n", i), 1, nil)
		}
		b.Record("m1", 1, nil)
		pass(time.Second, a, b)
		p := b.since(a.next("b"), "a")
		a.merge("b", a.now(), p)
		a.received("b", p)
		if got := a.Silence("m1", 1); !p.More || got != 0 {
			t.Errorf("silent for %s, though the head has not reported since", got)
		}
		a.exchanged("the rest", a.ask(b, "b"), pageSize+1)
		pass(time.Second, a)
		if got := a.Silence("m1", 1); got != time.Second {
			t.Errorf("silent for %s, want 1s", got)
		}
	})
}

// What a head keeps is bounded by the number of agents, and forgotten when it is of no use.
func TestLearnedIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newHead(t)
		for i := range 100 * pageSize {
			a.Record(fmt.Sprint("m", i%10), 1, nil)
		}
		if n := len(a.learned.log); n > pageSize+20 {
			t.Errorf("%d numbers are kept for 10 agents", n)
		}
		a.Silence("unheard", 1)
		pass(keep+time.Minute, a)
		if p := a.since(request{}, "b"); len(p.Heartbeats) != 0 || len(a.last) != 0 || len(a.learned.log) != 0 ||
			len(a.awaited) != 0 {
			t.Errorf("after an hour: %+v, %d, %d, %d", p, len(a.last), len(a.learned.log), len(a.awaited))
		}
	})
}
