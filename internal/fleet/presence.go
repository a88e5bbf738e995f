package fleet

import (
	"sync"
	"time"

	"github.com/trivet-project/trivet"
)

// Presence knows when each agent was last heard, by the monotonic clock: by this head, or by another one that told it. It is
// memory only: after a start nobody has been heard, and silence is counted from the first question on.
//
// An agent speaks with any head. So silence is counted only as far as all other heads have told what they heard; and from
// when one of these was lost, since the agents that it heard need time to find another head.
type Presence struct {
	mu     sync.Mutex
	seen   map[string]sighting  // guarded by mu; by machine
	others map[string]time.Time // guarded by mu; by head: until when it has told what it heard
	period time.Duration        // guarded by mu; how often others tell
	asked  map[string]sighting  // guarded by mu; by machine: an epoch under which nothing was heard, and since when it is known
}

type sighting struct {
	epoch    int64
	at       time.Time
	learned  time.Time // when this head got to know it
	progress *trivet.Progress
}

// Word is one sighting as heads tell each other.
type Word struct {
	Machine  string           `json:"m"`
	Epoch    int64            `json:"e"`
	Ago      int64            `json:"a"` // ms
	Progress *trivet.Progress `json:"p,omitempty"`
}

// NewPresence begins to listen now.
func NewPresence() *Presence {
	return &Presence{seen: map[string]sighting{}, others: map[string]time.Time{}, asked: map[string]sighting{}}
}

// Heard notes a word from the agent that holds this epoch of the machine.
func (p *Presence) Heard(machine string, epoch int64, progress *trivet.Progress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	p.note(machine, sighting{epoch: epoch, at: now, learned: now, progress: progress})
}

func (p *Presence) note(machine string, s sighting) {
	if old, ok := p.seen[machine]; !ok || old.epoch < s.epoch || old.epoch == s.epoch && old.at.Before(s.at) {
		p.seen[machine] = s
	}
}

// Expect sets the heads that hear agents besides this one, and how often they tell. One that is new is taken to have told
// until now.
func (p *Presence) Expect(heads []string, period time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.period = period
	others := map[string]time.Time{}
	for _, name := range heads {
		told, ok := p.others[name]
		if !ok {
			told = time.Now()
		}
		others[name] = told
	}
	p.others = others
}

// Told is until when a head has told what it heard.
func (p *Presence) Told(head string) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.others[head]
}

// Learn takes what another head told when it was asked at a time.
func (p *Presence) Learn(head string, asked time.Time, words []Word) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	for _, w := range words {
		at := asked.Add(-time.Duration(max(w.Ago, 0)) * time.Millisecond)
		p.note(w.Machine, sighting{epoch: w.Epoch, at: at, learned: now, progress: w.Progress})
	}
	if told, ok := p.others[head]; ok && told.Before(asked) {
		p.others[head] = asked
	}
}

// keepSighting is how long a sighting is of use.
const keepSighting = time.Hour

// Words is what this head got to know within the last while, for another head. What is too old to be of use is dropped.
func (p *Presence) Words(within time.Duration) []Word {
	p.mu.Lock()
	defer p.mu.Unlock()
	for machine, s := range p.asked {
		if time.Since(s.at) > keepSighting {
			delete(p.asked, machine)
		}
	}
	words := []Word{}
	for machine, s := range p.seen {
		switch ago := time.Since(s.at); {
		case ago > keepSighting:
			delete(p.seen, machine)
		case time.Since(s.learned) <= within:
			words = append(words, Word{machine, s.epoch, ago.Milliseconds(), s.progress})
		}
	}
	return words
}

// Silence is for how long it is known that no head heard anything under this epoch. Of an epoch that was never heard of it
// counts from the first question, since another head may have granted it a moment ago.
func (p *Presence) Silence(machine string, epoch int64) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	s, ok := p.seen[machine]
	if !ok || s.epoch != epoch {
		s = p.await(machine, epoch)
	}
	from, until := s.at, time.Now()
	for _, told := range p.others {
		if lost := told.Add(2 * p.period); time.Now().Before(lost) {
			until = earlier(until, told)
		} else if from.Before(lost) {
			from = lost
		}
	}
	return max(0, until.Sub(from))
}

// await gives the first question about an epoch. p.mu is held.
func (p *Presence) await(machine string, epoch int64) sighting {
	s, ok := p.asked[machine]
	if !ok || s.epoch != epoch {
		s = sighting{epoch: epoch, at: time.Now()}
		p.asked[machine] = s
	}
	return s
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// Up says whether the agent of this epoch was heard within the last while.
func (p *Presence) Up(machine string, epoch int64, within time.Duration) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	s, ok := p.seen[machine]
	return ok && s.epoch == epoch && time.Since(s.at) < within
}

// Progress is how far the running action of the machine was at the last word; nil when nothing was said.
func (p *Presence) Progress(machine string) *trivet.Progress {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen[machine].progress
}

// Silence is how long an agent may say nothing before it is held for lost.
func (f *Fleet) Silence() time.Duration {
	if site, err := f.Sites.GetShared(trivet.SiteName); err == nil && site.Spec.Silence != 0 {
		return site.Spec.Silence.D()
	}
	return trivet.DefaultSilence.D()
}

// OtherHeads are the heads besides this one that agents may speak with, and where heads reach them.
func (f *Fleet) OtherHeads() map[string]string {
	urls := map[string]string{}
	for h := range f.Heads.AllShared() {
		if h.Name != f.head && h.Serves() && h.Status.Peer != "" {
			urls[h.Name] = h.Status.Peer
		}
	}
	return urls
}
