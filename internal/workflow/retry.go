package workflow

import (
	"fmt"
	"slices"
	"strings"

	"github.com/trivet-project/trivet"
)

// A run that failed may be continued by another one from an action on: what the actions before it did to the disks is
// there, as after a reset of the machine. Memory is not: the machine boots again, so nothing depends on it.

// Continue returns the steps that a run which continues a former one on the same machine has done already, or why it
// cannot begin with an action. A seed is written again in any case: it has the secret by which the installed system
// phones home for its run.
func Continue(former *trivet.Workflow, action string) (done []trivet.Step, err error) {
	actions := former.Spec.Actions
	at := slices.IndexFunc(actions, func(a trivet.Action) bool { return a.Name == action })
	switch {
	case at < 0:
		return nil, refuseStep(former, action, "is not one of its actions, which are "+actionNames(actions))
	case bootedDisk(&former.Status):
		return nil, refuseStep(former, action, "cannot be retried: the machine has booted its disk since")
	}
	for i := range actions[:at] {
		step := former.Status.Step(actions[i].Name)
		if step == nil || step.State != trivet.StepDone {
			return nil, refuseStep(former, action, fmt.Sprintf("comes after %s, which is not done; retry that",
				actions[i].Name))
		}
		if use := actions[i].Use; use == "seed" || use == "head" { // they have what only this run may use
			continue
		}
		kept := *step
		kept.Note = "done by " + former.Name
		done = append(done, kept)
	}
	return done, nil
}

func refuseStep(former *trivet.Workflow, action, why string) error {
	return &trivet.Error{Op: "retry", Kind: "Workflow", Name: former.ShortName(),
		Err:  fmt.Errorf("%w: step %q %s", trivet.ErrConflict, action, why),
		Hint: "without --step it begins again; see the steps: trivet describe workflow " + former.Name}
}

func actionNames(actions []trivet.Action) string {
	var all []string
	for i := range actions {
		all = append(all, actions[i].Name)
	}
	return strings.Join(all, ", ")
}

// keepDone replaces steps by those that were done before the run.
func keepDone(steps, done []trivet.Step) {
	for i := range steps {
		for _, d := range done {
			if d.Name == steps[i].Name {
				steps[i] = d
			}
		}
	}
}
