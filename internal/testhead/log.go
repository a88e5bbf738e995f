package testhead

import (
	"bytes"
	"strings"
	"sync"
	"time"
)

// Log collects the output of a program. It is safe for concurrent use.
type Log struct {
	mu    sync.Mutex
	text  bytes.Buffer  // guarded by mu
	grew  chan struct{} // guarded by mu; closed and replaced at each write
	ended bool          // guarded by mu
}

// NewLog returns an empty log.
func NewLog() *Log { return &Log{grew: make(chan struct{})} }

func (l *Log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.notify()
	return l.text.Write(b)
}

// End marks the log as complete: Await no longer waits.
func (l *Log) End() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	l.notify()
}

// notify wakes those who wait. l.mu is held.
func (l *Log) notify() {
	close(l.grew)
	l.grew = make(chan struct{})
}

// String returns all that was written.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Contains reports whether a text was written.
func (l *Log) Contains(text string) bool { return strings.Contains(l.String(), text) }

// Await waits for a text, and reports whether it was written before the end of the log and of the time.
func (l *Log) Await(text string, limit time.Duration) bool {
	late := time.After(limit)
	for {
		l.mu.Lock()
		found, ended, grew := bytes.Contains(l.text.Bytes(), []byte(text)), l.ended, l.grew
		l.mu.Unlock()
		if found || ended {
			return found
		}
		select {
		case <-grew:
		case <-late:
			return false
		}
	}
}
