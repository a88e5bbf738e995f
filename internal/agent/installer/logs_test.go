package installer

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trivet-project/trivet"
)

// shipping runs the shipper of logs and returns a function that ends it.
func shipping(t *testing.T, h *head) (*logs, func()) {
	l := newLogs(h)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	close(l.known)
	go func() { defer close(ended); l.ship(ctx) }()
	return l, func() { cancel(); <-ended }
}

func TestLogsArriveWholeAndInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHead()
		l, end := shipping(t, h)
		defer end()
		var want strings.Builder
		s := l.open("w", trivet.LogKey{Action: "a", Epoch: 1, Attempt: 1})
		for i := range 20000 {
			line := fmt.Sprintf("line %d\n", i)
			want.WriteString(line)
			s.Write([]byte(line))
			if i%5000 == 0 {
				h.change(func() { h.down = errDown })
				time.Sleep(time.Minute)
				h.change(func() { h.down = nil })
			}
		}
		s.Close()
		s.Write([]byte("after the end"))
		if err := l.flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := h.logs["w/a/1"]; got != want.String() {
			t.Errorf("%d bytes, want %d", len(got), want.Len())
		}
		synctest.Wait()
		if len(l.streams) != 0 || l.bytes != 0 {
			t.Errorf("%d streams and %d bytes are left", len(l.streams), l.bytes)
		}
	})
}

// The last logs after an outage are sent at once: the machine does not wait for long before its memory is lost.
func TestFlushEndsThePauseAfterAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHead()
		h.down = errDown
		l, end := shipping(t, h)
		defer end()
		s := l.open("w", trivet.LogKey{Action: "a", Epoch: 1, Attempt: 1})
		fmt.Fprint(s, "written during an outage")
		time.Sleep(time.Hour)
		h.change(func() { h.down = nil })
		began := time.Now()
		if err := l.flush(t.Context()); err != nil || time.Since(began) > 0 {
			t.Errorf("%v after %s", err, time.Since(began))
		}
		if got := h.logs["w/a/1"]; got != "written during an outage" {
			t.Errorf("the log is %q", got)
		}
	})
}

func TestAnOutageDropsTheOldestOutput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHead()
		h.down = errDown
		l, end := shipping(t, h)
		defer end()
		synctest.Wait()
		s := l.open("w", trivet.LogKey{Action: "a", Epoch: 1, Attempt: 1})
		line := strings.Repeat("x", 99) + "\n"
		for range 5 * logBuffer / len(line) {
			s.Write([]byte(line))
			l.mu.Lock()
			if l.bytes > logBuffer {
				t.Fatalf("buffers %d bytes", l.bytes)
			}
			l.mu.Unlock()
		}
		s.Write([]byte("the last line\n"))
		h.change(func() { h.down = nil })
		if err := l.flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		got := h.logs["w/a/1"]
		if len(got) > logBuffer+1000 || len(got) < logBuffer/2 || !strings.HasSuffix(got, "the last line\n") ||
			strings.Count(got, "were dropped here") != 1 {
			t.Errorf("%d bytes, %d marks, end %q", len(got), strings.Count(got, "were dropped here"),
				got[max(0, len(got)-200):])
		}
	})
}

func TestARefusedLogIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHead()
		h.down = fmt.Errorf("logs: %w", trivet.ErrNotFound)
		l, end := shipping(t, h)
		defer end()
		l.open("w", trivet.LogKey{Action: "a", Epoch: 1, Attempt: 1}).Write([]byte("output"))
		if err := l.flush(t.Context()); err != nil || l.bytes != 0 {
			t.Errorf("%d bytes, error %v", l.bytes, err)
		}
	})
}

func TestFlushIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHead()
		h.down = errDown
		l, end := shipping(t, h)
		defer end()
		l.open("w", trivet.LogKey{Action: "a", Epoch: 1, Attempt: 1}).Write([]byte("output"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := l.flush(ctx); err == nil {
			t.Error("reported that all was sent")
		}
	})
}

// A restarted agent has logs before a head has answered it.
func TestLogsWaitForTheFirstAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHead()
		l := newLogs(h)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go l.ship(ctx)
		l.open("w", trivet.LogKey{Action: "a", Epoch: 1, Attempt: 1}).Write([]byte("output"))
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(h.logs) > 0 {
			t.Errorf("sent %v", h.logs)
		}
		close(l.known)
		if err := l.flush(t.Context()); err != nil || h.logs["w/a/1"] != "output" {
			t.Errorf("sent %v, error %v", h.logs, err)
		}
	})
}
