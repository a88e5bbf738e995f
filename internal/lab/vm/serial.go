package vm

import (
	"context"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"sync"

	"github.com/trivet-project/trivet"
)

// Serial is a machine's serial console: it is written to a file and searched. It continues over power cycles.
type Serial struct {
	mu      sync.Mutex
	file    *os.File      // guarded by mu, as all below
	text    string        // not consumed by Expect yet; without terminal escape sequences
	last    string        // the newest maxRecent bytes, for errors
	partial string        // the beginning of a control sequence, whose end is not written yet
	changed chan struct{} // closed and replaced when text grows
}

const (
	maxUnread = 1 << 20 // older text is dropped
	maxRecent = 2 << 10
)

func newSerial(path string) (*Serial, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("serial console: %w", err)
	}
	return &Serial{file: f, changed: make(chan struct{})}, nil
}

// escapes matches terminal control sequences, which firmware writes, also between the letters of a text.
var escapes = regexp.MustCompile("\x1b\\[[0-9;?]*[a-zA-Z]|\x1b[()][A-Z0-9]|\x1b[=>c78]|[\x00\r]")

// begun matches the beginning of a control sequence at the end of a text. A longer one is none.
var begun = regexp.MustCompile("\x1b(\\[[0-9;?]{0,32}|[()])?$")

// Write adds output of the machine.
func (s *Serial) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, err := s.file.Write(p)
	text := s.partial + string(p)
	s.partial = begun.FindString(text)
	plain := escapes.ReplaceAllString(strings.TrimSuffix(text, s.partial), "")
	s.text = keepEnd(s.text+plain, maxUnread)
	s.last = keepEnd(s.last+plain, maxRecent)
	close(s.changed)
	s.changed = make(chan struct{})
	return n, err
}

func keepEnd(s string, n int) string { return s[max(0, len(s)-n):] }

// Expect waits for a match in the text that earlier calls have not consumed, and returns it with its groups. The error
// has the last output of the machine.
func (s *Serial) Expect(ctx context.Context, re *regexp.Regexp) ([]string, error) {
	for {
		s.mu.Lock()
		at := re.FindStringSubmatchIndex(s.text)
		if at != nil {
			match := re.FindStringSubmatch(s.text)
			s.text = s.text[at[1]:]
			s.mu.Unlock()
			return match, nil
		}
		changed, last := s.changed, s.last
		s.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, fmt.Errorf("no %q on the console: %w; last output:\n%s", re, ctx.Err(),
				strings.TrimSpace(last))
		}
	}
}

// Skip consumes all output so far.
func (s *Serial) Skip() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text = ""
}

func (s *Serial) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.file.Close()
}

var _ io.Writer = (*Serial)(nil)

var errOff = fmt.Errorf("machine is off: %w", trivet.ErrUnavailable)
