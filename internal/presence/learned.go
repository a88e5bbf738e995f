package presence

import (
	"sort"
	"time"
)

// Heads exchange only what they learned since the last exchange. Each heartbeat that a head gets has the
// next number of that head; a peer asks for those after a number. After a restart of either head, the peer asks for all.

// keep is how long a heartbeat is of use.
const keep = time.Hour

// pageSize is how many heartbeats a response has at most.
const pageSize = 1000

// request asks for the heartbeats that a head learned of after a position.
type request struct {
	position
	// All is set until the first exchange after a start is complete: also what the other head learned from this one.
	All bool `json:"all,omitempty"`
}

// position is up to where a peer has a head's heartbeats. Start is of the head's process: the numbers of an earlier one
// mean nothing.
type position struct {
	Start string `json:"start"`
	Seq   int64  `json:"seq"`
}

// page is the response: the oldest of them, the position up to where they are complete, and whether there are more.
type page struct {
	position
	More       bool        `json:"more,omitempty"`
	Heartbeats []Heartbeat `json:"heartbeats"`
}

// learned is the machines of which this head learned a heartbeat, in that order. A number is valid while it is that of
// the machine's last heartbeat.
type learned struct {
	start string
	seq   int64
	log   []entry
}

type entry struct {
	seq     int64
	machine string
}

func (l *learned) add(machine string) (seq int64) {
	l.seq++
	l.log = append(l.log, entry{l.seq, machine})
	return l.seq
}

// compact drops the numbers that are not valid where they are the most.
func (l *learned) compact(last map[string]heartbeat) {
	if len(l.log) < 2*len(last)+pageSize {
		return
	}
	kept := make([]entry, 0, len(last)+pageSize)
	for _, e := range l.log {
		if last[e.machine].seq == e.seq {
			kept = append(kept, e)
		}
	}
	l.log = kept
}

// since returns a page of what this head learned, for a peer.
func (t *Tracker) since(req request, peer string) page {
	now := t.now()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.expire(now)
	after := req.Seq
	if req.Start != t.learned.start {
		after = 0
	}
	p := page{position: position{t.learned.start, t.learned.seq}, Heartbeats: []Heartbeat{}}
	log := t.learned.log
	for _, e := range log[sort.Search(len(log), func(i int) bool { return log[i].seq > after }):] {
		h := t.last[e.machine]
		if h.seq != e.seq || h.from == peer && !req.All {
			continue
		}
		if len(p.Heartbeats) == pageSize {
			p.More, p.Seq = true, after
			break
		}
		age := (now - h.at + time.Millisecond - 1).Milliseconds() // rounded up: what comes back is never newer
		p.Heartbeats = append(p.Heartbeats, Heartbeat{e.machine, h.epoch, age, h.progress})
		after = e.seq
	}
	return p
}

// expire drops heartbeats that are too old to be of use, from the beginning of the log on. t.mu is held.
func (t *Tracker) expire(now time.Duration) {
	l := &t.learned
	for len(l.log) > 0 {
		e := l.log[0]
		if h := t.last[e.machine]; h.seq == e.seq {
			if now-h.at <= keep {
				break
			}
			delete(t.last, e.machine)
		}
		l.log = l.log[1:]
	}
	if now-t.expired < time.Minute {
		return
	}
	t.expired = now
	for machine, h := range t.awaited {
		if now-h.at > keep {
			delete(t.awaited, machine)
		}
	}
}
