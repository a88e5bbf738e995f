package cluster

import (
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// pace warns when a member comes near the end of raft's times. A leader that says nothing for as long as Config.Election is
// replaced; where that is for want of CPU or a slow disk, it is soon again, and again.
type pace struct {
	log             *slog.Logger
	every, election time.Duration // Config's times

	mu    sync.Mutex
	first time.Time // guarded by mu, like all that follow; of the late heartbeats that are counted
	last  time.Time
	count int
	told  time.Time
}

const (
	paceCount = 5                // so many late heartbeats in paceTime are a warning, or
	paceTime  = time.Minute      //
	paceQuiet = 10 * time.Minute // after which nothing is told for a while
)

// heartbeat is called when the leader's heartbeats to some member were so far apart: two of Config.Heartbeat at least.
func (p *pace) heartbeat(apart time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if now.Sub(p.first) >= paceTime {
		p.first, p.count = now, 0
	}
	if now.Sub(p.last) > p.every { // the others were told late at the same time
		p.count++
	}
	p.last = now
	if apart < p.election/2 && p.count < paceCount || !p.told.IsZero() && now.Sub(p.told) < paceQuiet {
		return
	}
	p.told = now
	p.log.Warn("the store's leader is late: much later, and the heads choose another one; writes wait meanwhile",
		"late", apart, "limit", p.election, "times", p.count,
		"hint", fmt.Sprintf("give this head more CPU, or its data folder a faster disk of its own; "+
			"or start all heads with --heartbeat %v: a leader that dies is then missed that much later", 2*p.every))
}
