package cli

import (
	"fmt"
	"slices"
	"time"

	"github.com/trivet-project/trivet"
)

// stepRows returns the steps of a workflow as rows of a table.
func stepRows(w *trivet.Workflow) [][]string {
	rows := [][]string{{"STEP", "STATE", "ATTEMPT", "TIME", "USUAL", "DEADLINE", "MESSAGE"}}
	for _, s := range w.Status.Steps {
		rows = append(rows, []string{s.Name, stepState(s), attemptText(s), stepTime(s),
			orDefault(usualText(w.Spec.StepTime(s.Name)), "-"), s.Timeout.String(), noteText(s)})
	}
	if len(w.Spec.Times) == 0 { // nothing was learnt when it began
		for i := range rows {
			rows[i] = slices.Delete(rows[i], 4, 5)
		}
	}
	return rows
}

func stepState(s trivet.Step) string {
	if s.State == trivet.StepWaiting {
		return "-"
	}
	return string(s.State)
}

func attemptText(s trivet.Step) string {
	if s.Attempt == 0 {
		return "-"
	}
	return fmt.Sprintf("%d/%d", s.Attempt, s.MaxAttempts)
}

func stepTime(s trivet.Step) string {
	switch {
	case s.State == trivet.StepWaiting, s.State == trivet.StepSkipped:
		return "-"
	case s.State == trivet.StepRunning: // by the local clock, if plausible
		if since := time.Since(s.Started); isPlausible(s, since) {
			return durationText(since)
		}
	case !trivet.IsBootStep(s.Name) && s.State == trivet.StepDone: // as the agent measured it
	case !s.Ended.IsZero() && !s.Started.IsZero():
		return durationText(s.Ended.Sub(s.Started))
	}
	return durationText(s.Elapsed.D())
}

// isPlausible reports whether a running step may have begun so long ago, as the local clock has it.
func isPlausible(s trivet.Step, since time.Duration) bool {
	return since > s.Elapsed.D() && since < s.Timeout.D()
}

// stateText is the state of a record as a sentence goes on with it: "is active", "has failed".
func stateText(state string) string {
	switch state {
	case "":
		return "is new"
	case string(trivet.ProvisionSucceeded), string(trivet.ProvisionFailed):
		return "has " + state
	}
	return "is " + state
}

// durationText rounds a duration: to milliseconds below a second, to tenths below ten seconds, otherwise to seconds.
func durationText(d time.Duration) string {
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

// noteText returns a step's note, with the cause of its last failure.
func noteText(s trivet.Step) string {
	switch {
	case s.Cause != "" && s.Note != "" && s.State != trivet.StepDone:
		return printable(s.Note + "; last failure: " + s.Cause)
	case s.Cause != "" && s.State != trivet.StepDone:
		return printable(s.Cause)
	}
	return printable(s.Note)
}
