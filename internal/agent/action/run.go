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

// findProgram is the step of a [sandbox.StartError] where there is no such program.
const findProgram = "find the program"

// run runs a program with its output in the action's log, except where the caller has its standard output. An exit
// status other than 0 is a failure of the given type; a missing program is a failure of the configuration.
func (e *Env) run(ctx context.Context, at *Attempt, blame trivet.FailureType, s sandbox.Spec) error {
	last := &lastLine{to: at.Log}
	s.Stderr = last
	if s.Stdout == nil {
		s.Stdout = last
	}
	if sandbox.Lookup(s.Env, "PATH") == "" {
		s.Env = append(s.Env, installerPath)
	}
	start := e.start
	if start == nil {
		start = sandbox.Run
	}
	err := start(ctx, s)
	var exit *sandbox.ExitError
	var failed *sandbox.StartError
	switch {
	case errors.As(err, &exit):
		return failf(blame, "%s: %w%s", s.Args[0], err, last.suffix())
	case errors.As(err, &failed) && (failed.Step == findProgram || strings.HasPrefix(failed.Step, "run ")):
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
