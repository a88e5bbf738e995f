package cli

import (
	"cmp"
	"fmt"
	"io"
	"strconv"

	"github.com/trivet-project/trivet"
)

// lines displays a provision as one line per change, for files and pipes.
type lines struct {
	out     io.Writer
	shown   map[string]string // by step: its last line
	pending string            // last line of the provision
	paused  string            // last line of its pause
}

func (l *lines) show(p provisionState) {
	if text := waitingText(p); text != l.pending {
		l.pending = text
		if text != "" && p.provision.Status.Reason != "" { // else not reconciled yet
			fmt.Fprintf(l.out, "%s: %s\n", p.provision.Name, text)
		}
	}
	if p.workflow == nil {
		return
	}
	if text := runPauseText(p.workflow); text != l.paused {
		l.paused = text
		fmt.Fprintf(l.out, "%s: %s\n", p.provision.Name, printable(cmp.Or(text, "resumed")))
	}
	if text := etaText(p.workflow); text != "" && l.shown[p.workflow.Name] == "" {
		l.shown[p.workflow.Name] = text
		fmt.Fprintf(l.out, "%s: %s\n", p.workflow.Spec.Machine, text)
	}
	for _, s := range p.workflow.Status.Steps {
		line := stepLine(s, p.workflow.Spec.StepTime(s.Name))
		key := p.workflow.Name + " " + s.Name
		if line == l.shown[key] {
			continue
		}
		l.shown[key] = line
		fmt.Fprintf(l.out, "%s: %s\n", p.workflow.Spec.Machine, line)
	}
}

func (l *lines) close() {}

// waitingText is pendingText with the pause and the place in the queue.
func waitingText(p provisionState) string {
	text := pendingText(p.provision)
	if pause := p.provision.Status.Paused; text != "" && pause != nil {
		text = printable(pauseText(pause)) + "; " + text
	}
	if text != "" && p.place != nil {
		text += "; " + printable(queueText(p.place))
	}
	return text
}

// pendingText returns what a provision without a workflow waits for.
func pendingText(p *trivet.Provision) string {
	if !p.Status.State.Waits() {
		return ""
	}
	if n := len(p.Status.Spent); n > 0 {
		last := p.Status.Spent[n-1]
		return fmt.Sprintf("waiting for another machine, as %s failed on %s", last.Failure.Step, last.Machine) +
			suffix(p.Status.Reason)
	}
	if r := p.Status.Replaced; r != nil {
		return fmt.Sprintf("waiting for another machine, as %s is replaced", r.Machine) + suffix(p.Status.Reason)
	}
	return "waiting for a machine" + suffix(p.Status.Reason)
}

func suffix(text string) string {
	if text == "" {
		return ""
	}
	return ": " + printable(text)
}

func stepLine(s trivet.Step, usual *trivet.StepTime) string {
	switch s.State {
	case trivet.StepRunning:
		times := "deadline " + s.Timeout.String()
		if text := usualText(usual); text != "" {
			times = "usually " + text + ", " + times
		}
		return fmt.Sprintf("%s: attempt %s, %s%s", s.Name, attemptText(s), times, suffix(noteText(s)))
	case trivet.StepDone:
		return fmt.Sprintf("%s: done in %s%s", s.Name, stepTime(s), suffix(s.Note))
	case trivet.StepFailed:
		return fmt.Sprintf("%s: failed after %s%s", s.Name, attempts(max(s.Attempt, 1)),
			suffix(cmp.Or(s.Cause, s.Note)))
	case trivet.StepSkipped:
		return s.Name + ": skipped" + suffix(s.Note)
	case trivet.StepCancelled:
		return s.Name + ": cancelled after " + stepTime(s)
	}
	return ""
}

func attempts(n int) string {
	if n == 1 {
		return "1 attempt"
	}
	return strconv.Itoa(n) + " attempts"
}
