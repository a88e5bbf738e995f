package cluster

import (
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// heartbeatMonitor warns when the leader's heartbeats come close to the election timeout. A leader that is silent for
// Config.Election is replaced; if the cause is lack of CPU or a slow disk, this repeats.
type heartbeatMonitor struct {
	log                *slog.Logger
	interval, election time.Duration // of Config

	mu     sync.Mutex
	first  time.Time // guarded by mu, as all below; of the late heartbeats that are counted
	last   time.Time
	count  int
	warned time.Time
}

const (
	lateCount    = 5           // late heartbeats within latePeriod that cause a warning
	latePeriod   = time.Minute //
	warnInterval = 10 * time.Minute
)

// late is called when the leader's heartbeats to a member were so far apart: at least twice Config.Heartbeat.
func (h *heartbeatMonitor) late(apart time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	if now.Sub(h.first) >= latePeriod {
		h.first, h.count = now, 0
	}
	if now.Sub(h.last) > h.interval { // else a heartbeat to another member at the same time
		h.count++
	}
	h.last = now
	if apart < h.election/2 && h.count < lateCount || !h.warned.IsZero() && now.Sub(h.warned) < warnInterval {
		return
	}
	h.warned = now
	h.log.Warn("the store's leader sends heartbeats late; if they are later than the limit, another head is "+
		"elected and writes wait",
		"delay", apart, "limit", h.election, "count", h.count,
		"hint", fmt.Sprintf("give this head more CPU or its data directory a faster disk, "+
			"or start all heads with --heartbeat %v; a failed leader is then detected later", 2*h.interval))
}
