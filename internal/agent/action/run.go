package action

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/agent/container/sandbox"
)

// installerPath is where the installer's and most systems' programs are.
const installerPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// run runs a program with its output in the action's log. An exit status other than 0 is a failure of the given type; a
// missing program is a failure of the configuration.
func (e *Env) run(ctx context.Context, at *Attempt, blame trivet.FailureType, s sandbox.Spec) error {
	last := &lastLine{to: at.Log}
	s.Stdout, s.Stderr = last, last
	if sandbox.Lookup(s.Env, "PATH") == "" {
		s.Env = append(s.Env, installerPath)
	}
	err := sandbox.Run(ctx, s)
	var exit *sandbox.ExitError
	var start *sandbox.StartError
	switch {
	case errors.As(err, &exit):
		return failf(blame, "%s: %w%s", s.Args[0], err, last.suffix())
	case errors.As(err, &start) && (start.Step == "find the program" || strings.HasPrefix(start.Step, "run ")):
		return finalf(trivet.FaultConfiguration, "%s: %w", s.Args[0], err)
	case err != nil:
		return fmt.Errorf("%s: %w", s.Args[0], err)
	}
	return nil
}

// lastLine forwards output and keeps its last line that is not empty, which usually is the error.
type lastLine struct {
	to io.Writer

	mu   sync.Mutex // guards following
	line []byte     // the last complete one
	part []byte     // after it
}

// maxLine limits the kept line, in bytes.
const maxLine = 300

func (l *lastLine) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range bytes.Lines(b) {
		l.part = append(l.part, line[:min(len(line), maxLine)]...)
		l.part = l.part[:min(len(l.part), maxLine)]
		if line[len(line)-1] == '\n' {
			l.end()
		}
	}
	return l.to.Write(b)
}

func (l *lastLine) end() {
	if text := bytes.TrimSpace(l.part); len(text) > 0 {
		l.line = append(l.line[:0], text...)
	}
	l.part = l.part[:0]
}

func (l *lastLine) suffix() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end()
	if len(l.line) == 0 {
		return ""
	}
	return ": " + string(l.line)
}
