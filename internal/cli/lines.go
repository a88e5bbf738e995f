package cli

import (
	"cmp"
	"fmt"
	"io"

	"github.com/trivet-project/trivet"
)

// lines shows a provision as one line for each thing that happens, for files and pipes.
type lines struct {
	out   io.Writer
	shown map[string]string // by step: its last line
	said  string            // of the provision
}

func (l *lines) show(p picture) {
	if said := pending(p.provision); said != l.said {
		l.said = said
		if said != "" && p.provision.Status.Reason != "" { // else nobody has looked at it yet
			fmt.Fprintf(l.out, "%s: %s\n", p.provision.Name, said)
		}
	}
	if p.workflow == nil {
		return
	}
	for _, s := range p.workflow.Status.Steps {
		line := stepLine(s)
		key := p.workflow.Name + " " + s.Name
		if line == l.shown[key] {
			continue
		}
		l.shown[key] = line
		fmt.Fprintf(l.out, "%s: %s\n", p.workflow.Spec.Machine, line)
	}
}

func (l *lines) close() {}

// pending says what a provision waits for that has no run.
func pending(p *trivet.Provision) string {
	if p.Status.State == trivet.ProvisionPending || p.Status.State == "" {
		return "waiting for a machine" + suffix(p.Status.Reason)
	}
	return ""
}

func suffix(text string) string {
	if text == "" {
		return ""
	}
	return ": " + printable(text)
}

func stepLine(s trivet.Step) string {
	switch s.State {
	case trivet.StepRunning:
		return fmt.Sprintf("%s: attempt %s, deadline %s%s", s.Name, attempts(s), s.Timeout, suffix(what(s)))
	case trivet.StepDone:
		return fmt.Sprintf("%s: done in %s%s", s.Name, tookText(s), suffix(s.Note))
	case trivet.StepFailed:
		return fmt.Sprintf("%s: failed after %s%s", s.Name, times(max(s.Attempt, 1)), suffix(cmp.Or(s.Cause, s.Note)))
	case trivet.StepSkipped:
		return s.Name + ": skipped" + suffix(s.Note)
	}
	return ""
}
