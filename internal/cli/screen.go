package cli

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/trivet-project/trivet"
)

// screen displays a provision on a terminal, redrawn in place.
type screen struct {
	out   io.Writer
	width int
	drawn int // lines drawn last
	// The running step, and the local time when it was first seen: the heads' clocks may differ.
	step  string
	since time.Time
	// For the rate of the progress.
	done int64
	at   time.Time
	rate float64 // per second
}

func newScreen(out io.Writer, width int) *screen { return &screen{out: out, width: width} }

var marks = map[trivet.StepState]string{
	trivet.StepRunning: "\x1b[36m>\x1b[0m", trivet.StepDone: "\x1b[32m+\x1b[0m", trivet.StepFailed: "\x1b[31mx\x1b[0m",
	trivet.StepSkipped: "-", trivet.StepWaiting: " ", trivet.StepCancelled: "-",
}

func (s *screen) show(p provisionState) {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n", printable(p.provision.Name), printable(headline(p)))
	n := 1
	if p.workflow != nil {
		for _, step := range p.workflow.Status.Steps {
			fmt.Fprintf(&b, "  %s %s\n", marks[step.State], s.fit(printable(s.line(step, p))))
			n++
		}
	}
	erase := ""
	if s.drawn > 0 {
		erase = fmt.Sprintf("\x1b[%dA\x1b[J", s.drawn)
	}
	io.WriteString(s.out, erase+b.String())
	s.drawn = n
}

func (s *screen) close() {}

func headline(p provisionState) string {
	if text := waitingText(p); text != "" {
		return text
	}
	st := p.provision.Status
	text := fmt.Sprintf("%s on %s, attempt %d", st.State, st.Machine, st.Attempts)
	if p.workflow != nil && p.workflow.Status.Paused != nil {
		text += ", " + runPauseText(p.workflow)
	} else if left := etaCell(p.workflow); left != "" {
		text += ", about " + left + " left"
	}
	return text
}

// fit truncates a line to the terminal's width, less the mark before it: wrapped lines would break redrawing.
func (s *screen) fit(line string) string {
	limit := max(s.width-5, 20)
	if utf8.RuneCountInString(line) <= limit {
		return line
	}
	return string([]rune(line)[:limit-1]) + "…"
}

func (s *screen) line(step trivet.Step, p provisionState) string {
	text := fmt.Sprintf("%-16s", step.Name)
	switch step.State {
	case trivet.StepWaiting, trivet.StepSkipped:
		return text
	case trivet.StepRunning:
		text += fmt.Sprintf(" %s / %s", durationText(s.elapsed(step)), step.Timeout)
		if usual := usualText(p.workflow.Spec.StepTime(step.Name)); usual != "" {
			text += ", usually " + usual
		}
		if step.Attempt > 1 {
			text += fmt.Sprintf(", attempt %s", attemptText(step))
		}
		text += s.progress(p.progress, step.Name)
	default:
		text += " " + stepTime(step)
	}
	if w := noteText(step); w != "" {
		text += "  " + w
	}
	return text
}

// elapsed returns the time since the running step began, by the local clock if that is plausible, or else since it was
// first shown.
func (s *screen) elapsed(step trivet.Step) time.Duration {
	key := fmt.Sprintf("%s/%d/%s", step.Name, step.Attempt, step.Started)
	if key != s.step {
		s.step, s.since = key, time.Now()
	}
	if since := time.Since(step.Started); isPlausible(step, since) {
		return since
	}
	return time.Since(s.since)
}

// progress returns the progress and rate of the running action.
func (s *screen) progress(p *trivet.Progress, step string) string {
	if p == nil || p.Action != step {
		return ""
	}
	now := time.Now()
	if p.Done != s.done {
		if p.Done > s.done && s.done > 0 {
			s.rate = float64(p.Done-s.done) / now.Sub(s.at).Seconds()
		}
		s.done, s.at = p.Done, now
	}
	return "  " + progressText(p.Done, p.Total, s.rate, p.Unit)
}

// progressText returns text such as "1.2 GiB of 4.0 GiB (30%), 210 MiB/s".
func progressText(done, total int64, rate float64, unit string) string {
	number := func(n int64) string { return strings.TrimSpace(fmt.Sprintf("%d %s", n, unit)) }
	if unit == "bytes" || unit == "" {
		number = bytesText
	}
	text := number(done)
	if total > 0 {
		text += fmt.Sprintf(" of %s (%d%%)", number(total), min(done*100/total, 100))
	}
	if rate > 0 {
		text += ", " + number(int64(rate)) + "/s"
	}
	return text
}
