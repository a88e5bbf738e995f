package fleet

import (
	"sync"
	"time"

	"github.com/trivet-project/trivet"
)

// Presence knows when each agent was last heard by this head, by the monotonic clock. It is memory only: after a start
// nobody has been heard, and silence is counted from then.
type Presence struct {
	start time.Time
	mu    sync.Mutex
	seen  map[string]sighting // guarded by mu; by machine
}

type sighting struct {
	epoch    int64
	at       time.Time
	progress *trivet.Progress
}

// NewPresence begins to listen now.
func NewPresence() *Presence {
	return &Presence{start: time.Now(), seen: map[string]sighting{}}
}

// Heard notes a word from the agent that holds this epoch of the machine.
func (p *Presence) Heard(machine string, epoch int64, progress *trivet.Progress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.seen[machine].epoch <= epoch {
		p.seen[machine] = sighting{epoch: epoch, at: time.Now(), progress: progress}
	}
}

// Silence is how long nothing was heard under this epoch: at most as long as this head has listened.
func (p *Presence) Silence(machine string, epoch int64) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s, ok := p.seen[machine]; ok && s.epoch == epoch {
		return time.Since(s.at)
	}
	return time.Since(p.start)
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

// Forget drops what is known of a machine that is gone.
func (p *Presence) Forget(machine string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.seen, machine)
}
