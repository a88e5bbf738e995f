package cli

import (
	"fmt"
	"time"

	"github.com/trivet-project/trivet"
)

// stepRows is a run as a table: one row a step.
func stepRows(w *trivet.Workflow) [][]string {
	rows := [][]string{{"STEP", "STATE", "ATTEMPT", "TIME", "DEADLINE", "WHAT"}}
	for _, s := range w.Status.Steps {
		rows = append(rows, []string{s.Name, stepState(s), attempts(s), tookText(s), s.Timeout.String(), what(s)})
	}
	return rows
}

func stepState(s trivet.Step) string {
	if s.State == trivet.StepWaiting {
		return "-"
	}
	return string(s.State)
}

func attempts(s trivet.Step) string {
	if s.Attempt == 0 {
		return "-"
	}
	return fmt.Sprintf("%d/%d", s.Attempt, s.MaxAttempts)
}

func tookText(s trivet.Step) string {
	switch {
	case s.State == trivet.StepWaiting, s.State == trivet.StepSkipped:
		return "-"
	case !s.Ended.IsZero() && !s.Started.IsZero():
		return took(s.Ended.Sub(s.Started))
	case s.Attempt == 1 && !s.Started.IsZero(): // by our clock, where it can be right
		if since := time.Since(s.Started); since > s.Elapsed.D() && since < s.Timeout.D() {
			return took(since)
		}
	}
	return took(s.Elapsed.D())
}

// took writes a duration as people do: milliseconds below a second, tenths below ten, no fraction above.
func took(d time.Duration) string {
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

// what is a step's last word, with the cause of its last failure.
func what(s trivet.Step) string {
	switch {
	case s.Cause != "" && s.Note != "" && s.State != trivet.StepDone:
		return printable(s.Note + "; last failure: " + s.Cause)
	case s.Cause != "" && s.State != trivet.StepDone:
		return printable(s.Cause)
	}
	return printable(s.Note)
}
