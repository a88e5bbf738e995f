package cli

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// transfer displays the progress of a transfer: on a terminal as one line that is updated, otherwise as a line every
// few seconds.
type transfer struct {
	out   io.Writer
	live  bool
	name  string
	total int64 // 0: unknown

	mu    sync.Mutex
	began time.Time // guarded by mu, as all below
	shown time.Time
	done  int64
	start int64 // done at began
}

func (a *app) transfer(name string, total int64) *transfer {
	_, live := a.terminal()
	return &transfer{out: a.status, live: live, name: name, total: total}
}

// Intervals of updates on a terminal and of lines.
const (
	updateInterval = 200 * time.Millisecond
	lineInterval   = 5 * time.Second
)

// update sets the number of transferred bytes. It decreases if the transfer restarts.
func (m *transfer) update(done int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	if m.began.IsZero() || done < m.done {
		m.began, m.start = now, done
		if m.shown.IsZero() {
			m.shown = now
		}
	}
	m.done = done
	interval := lineInterval
	if m.live {
		interval = updateInterval
	}
	if now.Sub(m.shown) < interval {
		return
	}
	m.shown = now
	m.print(now)
}

func (m *transfer) print(now time.Time) {
	rate := 0.0
	if elapsed := now.Sub(m.began).Seconds(); elapsed > 0 {
		rate = float64(m.done-m.start) / elapsed
	}
	text := printable(m.name) + "  " + progressText(m.done, m.total, rate, "bytes")
	if m.live {
		fmt.Fprintf(m.out, "\r\x1b[K%s", text)
		return
	}
	fmt.Fprintln(m.out, text)
}

// end clears the line.
func (m *transfer) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.live {
		fmt.Fprint(m.out, "\r\x1b[K")
	}
}
