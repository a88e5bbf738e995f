package workflow

import (
	"fmt"
	"strings"
	"time"

	"github.com/trivet-project/trivet"
)

// Apply applies a batch of reports under the run's epoch, at most so many of them. Reports that are acknowledged
// already change nothing, so a batch may be sent again. After an error the caller must discard the changed status.
func (r *Run) Apply(reports []trivet.Report, most int) error {
	for i := range reports {
		report := reports[i]
		if report.Seq <= r.Status.Acked {
			continue
		}
		if most--; most < 0 {
			return nil
		}
		if report.Seq != r.Status.Acked+1 {
			return fmt.Errorf("%w: report %d follows %d", trivet.ErrInvalid, report.Seq, r.Status.Acked)
		}
		if err := r.apply(&report); err != nil {
			return err
		}
		r.Status.Acked = report.Seq
	}
	return nil
}

func (r *Run) apply(report *trivet.Report) error {
	if r.Status.State != trivet.WorkflowRunning {
		return fmt.Errorf("%w: the run is %s", trivet.ErrFenced, r.Status.State)
	}
	step := r.nextAction()
	if step == nil || step.Name != report.Action {
		return fmt.Errorf("%w: report %d is of action %q, which is not the next one", trivet.ErrInvalid, report.Seq,
			report.Action)
	}
	// each failure uses an attempt, whatever number an agent gives to the next one
	step.Attempt = min(max(step.Attempt, report.Attempt, step.Failures+1), step.MaxAttempts)
	report.Note = clip(report.Note, MaxNote)
	step.Note = report.Note
	switch report.State {
	case trivet.StepRunning:
		step.State = trivet.StepRunning
		r.restart(step)
	case trivet.StepDone:
		r.actionDone(step, report)
	case trivet.StepFailed:
		r.actionFailed(step, report)
	default:
		return fmt.Errorf("%w: report %d has the state %q", trivet.ErrInvalid, report.Seq, report.State)
	}
	return nil
}

// rounded returns a duration for people: in tenths of a second, of which a short one has three digits.
func rounded(d trivet.Duration) string {
	unit := 100 * time.Millisecond
	if d.D() < time.Second {
		unit = time.Millisecond
	}
	return d.D().Round(unit).String()
}

func (r *Run) actionDone(step *trivet.Step, report *trivet.Report) {
	r.end(step, trivet.StepDone)
	step.Elapsed, step.Note, step.Cause = report.Elapsed, report.Note, ""
	if r.Spec.Action(step.Name).Use == "seed" {
		r.Status.SeedEpoch = r.Status.Epoch
	}
	r.event(trivet.ReasonActionDone, step.Name, "%s", joinNote("done in "+rounded(report.Elapsed), report.Note))
	next := r.nextAction()
	switch {
	case next == nil:
		r.finishActions()
	case losesMemory(r.Spec.Action(step.Name)):
		r.Status.Epoch = 0
		r.expectBoot("the machine boots again for " + next.Name)
	default:
		r.beginAction(next.Name)
	}
}

func (r *Run) actionFailed(step *trivet.Step, report *trivet.Report) {
	step.State, step.Cause, step.Failures = trivet.StepRunning, causeOf(report), step.Attempt
	step.Elapsed = report.Elapsed
	if report.Final || step.Attempt >= step.MaxAttempts {
		fault := report.Fault
		if fault == "" {
			fault = trivet.FaultMachine
		}
		r.fail(step, fault, step.Cause)
		return
	}
	r.warn(trivet.ReasonActionFailed, step.Name, "attempt %d of %d: %s", step.Attempt, step.MaxAttempts, step.Cause)
	r.again(step)
	if delay := r.Spec.Action(step.Name).BackoffAfter(step.Attempt); delay > 0 {
		step.Note = fmt.Sprintf("waits %s before attempt %d", delay, step.Attempt+1)
	}
}

// finishActions ends the agent's part of the run.
func (r *Run) finishActions() {
	if r.stops() {
		r.stop()
		return
	}
	if r.Status.Step(trivet.StepFirstBoot) == nil {
		r.succeed()
		return
	}
	r.Status.State = trivet.WorkflowStarting
	r.begin(trivet.StepFirstBoot, "waits for the installed system to phone home")
}

// expectBoot sends the run back to the boot steps, for an agent that starts from nothing.
func (r *Run) expectBoot(note string) {
	r.Status.State = trivet.WorkflowBooting
	if s := r.Status.Current(); s != nil {
		setWaiting(s)
	} else if s := r.nextAction(); s != nil && s.Note == notePaused { // the boot goes on
		s.Note = ""
	}
	r.reopen(trivet.StepDHCP, trivet.StepHello)
	r.begin(trivet.StepDHCP, note)
}

// MaxCause and MaxNote bound what is stored of a report's texts, in bytes; the logs have the rest.
const (
	MaxCause = 1024
	MaxNote  = 256
)

func causeOf(report *trivet.Report) string {
	if report.Cause == "" {
		return "no cause given"
	}
	return clip(report.Cause, MaxCause)
}

func clip(text string, limit int) string {
	if len(text) > limit {
		return strings.ToValidUTF8(text[:limit], "") + "..."
	}
	return text
}

func joinNote(what, note string) string {
	if note == "" {
		return what
	}
	return what + ": " + note
}
