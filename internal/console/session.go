package console

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/bmc"
)

// session is a console that this head has open.
type session struct {
	id, head string
	line     bmc.Console
	typing   sync.Mutex // one input after the other

	mu      sync.Mutex
	kept    []byte        // guarded by mu; the end of the text, at most MaxKept
	end     int64         // guarded by mu; bytes of text so far
	ended   error         // guarded by mu; why it has ended; nil: it has not
	read    time.Time     // guarded by mu; when it was read last
	readers int           // guarded by mu; that wait now
	changed chan struct{} // guarded by mu; closed and replaced with each change
}

func (s *session) describe() trivet.ConsoleSession {
	s.mu.Lock()
	defer s.mu.Unlock()
	return trivet.ConsoleSession{Session: s.id, Offset: s.end, Head: s.head}
}

// touch notes that a client will read, and reports whether the session has not ended.
func (s *session) touch() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.read = time.Now()
	return s.ended == nil
}

func (s *session) close() { s.line.Close() }

// run keeps the text of the machine until the session has ended, and then for those who read it.
func (s *session) run() {
	idle := make(chan struct{})
	stop := make(chan struct{})
	go func() {
		defer close(idle)
		s.closeIdle(stop)
	}()
	buf := make([]byte, 4096)
	for {
		n, err := s.line.Read(buf)
		s.add(buf[:n], err)
		if err != nil {
			break
		}
	}
	s.line.Close()
	close(stop)
	<-idle
}

// closeIdle closes the line when no client reads any more.
func (s *session) closeIdle(stop <-chan struct{}) {
	for {
		s.mu.Lock()
		rest := idleTimeout - time.Since(s.read)
		if s.readers > 0 {
			rest = idleTimeout
		}
		s.mu.Unlock()
		if rest <= 0 {
			s.line.Close()
			return
		}
		select {
		case <-stop:
			return
		case <-time.After(rest):
		}
	}
}

// add adds text of the machine, or why the session has ended.
func (s *session) add(text []byte, ended error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if errors.Is(ended, io.EOF) {
		ended = fmt.Errorf("%w: it was closed", trivet.ErrUnavailable)
	}
	s.kept, s.ended = append(s.kept, text...), ended
	if more := len(s.kept) - MaxKept; more > 0 {
		s.kept = s.kept[:copy(s.kept, s.kept[more:])]
	}
	s.end += int64(len(text))
	close(s.changed)
	s.changed = make(chan struct{})
}

// text waits for text from an offset until ctx ends.
func (s *session) text(ctx context.Context, from int64) trivet.ConsoleText {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.readers++
	for s.end <= from && s.ended == nil && ctx.Err() == nil {
		changed := s.changed
		s.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		s.mu.Lock()
	}
	s.readers--
	s.read = time.Now()
	t := trivet.ConsoleText{Next: s.end}
	if begin := s.end - int64(len(s.kept)); from < begin {
		t.Missed, from = begin-from, begin
	}
	if from < s.end {
		t.Text = append(t.Text, s.kept[int64(len(s.kept))-(s.end-from):]...)
	}
	if s.ended != nil {
		t.Ended = s.ended.Error()
	}
	return t
}

// input sends input to the machine.
func (s *session) input(text []byte, brk bool) error {
	s.typing.Lock()
	defer s.typing.Unlock()
	if len(text) > 0 {
		if _, err := s.line.Write(text); err != nil {
			return err
		}
	}
	if brk {
		return s.line.Break()
	}
	return nil
}
