package cli

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// meter shows how far a transfer is: on a terminal as one line that changes, else as a line every few seconds.
type meter struct {
	out   io.Writer
	live  bool
	name  string
	total int64 // 0: not known

	mu    sync.Mutex
	began time.Time // guarded by mu, as all below
	shown time.Time
	done  int64
	start int64 // done as it was first told
}

func (a *app) meter(name string, total int64) *meter {
	_, live := a.terminal()
	return &meter{out: a.Err, live: live, name: name, total: total}
}

// Pauses between two pictures, and two lines.
const (
	meterTick = 200 * time.Millisecond
	meterLine = 5 * time.Second
)

// at takes how many bytes are done. A transfer that begins again somewhere tells a smaller number.
func (m *meter) at(done int64) {
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
	pause := meterLine
	if m.live {
		pause = meterTick
	}
	if now.Sub(m.shown) < pause {
		return
	}
	m.shown = now
	m.print(now)
}

func (m *meter) print(now time.Time) {
	rate := 0.0
	if took := now.Sub(m.began).Seconds(); took > 0 {
		rate = float64(m.done-m.start) / took
	}
	text := m.name + "  " + progressText(m.done, m.total, rate, "bytes")
	if m.live {
		fmt.Fprintf(m.out, "\r\x1b[K%s", text)
		return
	}
	fmt.Fprintln(m.out, text)
}

// end clears the picture.
func (m *meter) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.live {
		fmt.Fprint(m.out, "\r\x1b[K")
	}
}
