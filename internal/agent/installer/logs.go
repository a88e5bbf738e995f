package installer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/trivet-project/trivet"
)

// Limits of the buffered logs and of one piece that is sent, in bytes.
const (
	logBuffer = 1 << 20
	logPiece  = 64 << 10
	logLinger = 100 * time.Millisecond // a piece waits this long for more to come
)

// logs buffers the output of actions until a head has it. Writing never blocks: when no head answers for long, the
// oldest output is dropped and replaced by a note.
type logs struct {
	client Client
	known  chan struct{} // closed when a head has answered; before, the heads may not know this agent
	wake   chan struct{} // capacity 1: there is something to send
	urgent chan struct{} // capacity 1: flush waits for the last piece

	mu      sync.Mutex // guards following, and the streams' fields
	streams []*stream  // oldest first; the first one is being sent
	bytes   int
	empty   []chan struct{} // closed when all is sent
}

// stream is the output of one attempt.
type stream struct {
	logs     *logs
	workflow string
	key      trivet.LogKey

	offset  int64  // of piece, in the log at the heads
	piece   []byte // being sent; it may have arrived, so it does not change
	pending []byte
	dropped int // bytes before pending
	closed  bool
}

func newLogs(client Client) *logs {
	return &logs{client: client, known: make(chan struct{}), wake: make(chan struct{}, 1),
		urgent: make(chan struct{}, 1)}
}

// open opens the log of an attempt.
func (l *logs) open(workflow string, key trivet.LogKey) *stream {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := &stream{logs: l, workflow: workflow, key: key}
	l.streams = append(l.streams, s)
	return s
}

// Write buffers b. It never fails and never blocks.
func (s *stream) Write(b []byte) (int, error) {
	l := s.logs
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.closed || len(b) == 0 {
		return len(b), nil
	}
	s.pending = append(s.pending, b...)
	l.bytes += len(b)
	for _, old := range l.streams {
		old.shorten(l)
	}
	signal(l.wake)
	return len(b), nil
}

// shorten drops the oldest output above logBuffer, and a quarter more, so that not every write has to.
func (s *stream) shorten(l *logs) {
	if l.bytes <= logBuffer {
		return
	}
	over := min(l.bytes-logBuffer*3/4, len(s.pending))
	s.pending = append([]byte(nil), s.pending[over:]...)
	s.dropped += over
	l.bytes -= over
}

// Close ends the log. Buffered output is still sent.
func (s *stream) Close() error {
	s.logs.mu.Lock()
	defer s.logs.mu.Unlock()
	s.closed = true
	if s.isDone() {
		s.logs.streams = slices.DeleteFunc(s.logs.streams, func(o *stream) bool { return o == s })
	}
	return nil
}

func (s *stream) left() int { return len(s.piece) + len(s.pending) + s.dropped }

func (s *stream) isDone() bool { return s.closed && s.left() == 0 }

// signal sends to c unless it is full.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// ship sends logs to the heads until ctx ends.
func (l *logs) ship(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-l.known:
	}
	var pause backoff
	for {
		s := l.next()
		if s == nil {
			if l.idle(ctx) != nil {
				return
			}
			continue
		}
		tryCtx, cancel := context.WithTimeout(ctx, syncTimeout)
		err := l.client.Logs(tryCtx, s.workflow, s.key, s.offset, s.piece)
		cancel()
		switch {
		case err == nil:
			l.sent(s)
			pause.reset()
		case isPermanent(err):
			l.forget(s)
		default:
			if l.rest(ctx, pause.next()) != nil {
				return
			}
		}
	}
}

// rest waits before the next attempt, unless flush waits: a head may answer again by now.
func (l *logs) rest(ctx context.Context, d time.Duration) error {
	pause := time.NewTimer(d)
	defer pause.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-l.urgent:
	case <-pause.C:
	}
	return nil
}

// idle waits for something to send, and then up to logLinger for more, unless flush waits.
func (l *logs) idle(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-l.urgent:
		return nil
	case <-l.wake:
	}
	linger := time.NewTimer(logLinger)
	defer linger.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-l.urgent:
	case <-linger.C:
	}
	return nil
}

// isPermanent reports whether no retry can make a head accept the log.
func isPermanent(err error) bool {
	return isRefusal(err) || errors.Is(err, trivet.ErrNotFound) || errors.Is(err, trivet.ErrInvalid) ||
		errors.Is(err, trivet.ErrTooLarge)
}

// next cuts a piece of the oldest stream that has something to send.
func (l *logs) next() *stream {
	l.mu.Lock()
	defer l.mu.Unlock()
	kept := l.streams[:0]
	var found *stream
	for _, s := range l.streams {
		if found == nil && s.cut() {
			found = s
		}
		if !s.isDone() {
			kept = append(kept, s)
		}
	}
	clear(l.streams[len(kept):])
	l.streams = kept
	if found == nil {
		for _, c := range l.empty {
			close(c)
		}
		l.empty = nil
	}
	return found
}

func (s *stream) cut() bool {
	if len(s.piece) > 0 {
		return true
	}
	if s.dropped > 0 {
		s.piece = fmt.Appendf(nil, "\n[trivet: %d bytes of output were dropped here: no head received them in time]\n",
			s.dropped)
		s.logs.bytes += len(s.piece)
		s.dropped = 0
		return true
	}
	n := min(len(s.pending), logPiece)
	s.piece, s.pending = append([]byte(nil), s.pending[:n]...), s.pending[n:]
	return n > 0
}

func (l *logs) sent(s *stream) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s.offset += int64(len(s.piece))
	l.bytes -= len(s.piece)
	s.piece = nil
}

// forget drops a stream that the heads refuse.
func (l *logs) forget(s *stream) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bytes -= len(s.piece) + len(s.pending)
	s.piece, s.pending, s.dropped, s.closed = nil, nil, 0, true
}

// flush returns when all output is sent, or when ctx ends.
func (l *logs) flush(ctx context.Context) error {
	c := make(chan struct{})
	l.mu.Lock()
	isEmpty := !slices.ContainsFunc(l.streams, func(s *stream) bool { return s.left() > 0 })
	if !isEmpty {
		l.empty = append(l.empty, c)
	}
	l.mu.Unlock()
	if isEmpty {
		return nil
	}
	signal(l.urgent)
	select {
	case <-c:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
