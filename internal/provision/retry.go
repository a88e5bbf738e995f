package provision

import (
	"fmt"
	"time"

	"github.com/trivet-project/trivet"
)

// Retry returns the status of a provision that an operator retries after it failed: it waits for a machine as at first,
// and may use each one again. Its runs stay counted.
func Retry(st trivet.ProvisionStatus, fullName, by string) (trivet.ProvisionStatus, error) {
	refuse := refusal("retry", fullName)
	switch {
	case st.State == trivet.ProvisionSucceeded:
		return st, refuse("it has succeeded",
			"to install its machine again: trivet redeploy%s %s")
	case st.State.Waits() && st.Paused != nil:
		return st, refuse("it is paused", "resume it: trivet resume%s %s")
	case st.State.Waits():
		return st, refuse("it has not failed: it waits for a machine", "watch it: trivet provision%s %s --watch")
	case !st.State.Ended():
		return st, refuse("it has not failed: its run goes on", "watch it: trivet provision%s %s --watch")
	}
	st.State, st.Reason = trivet.ProvisionPending, "retried by "+by
	st.Replaced = nil
	again(&st)
	return st, nil
}

// again resets what the earlier runs of a provision have left.
func again(st *trivet.ProvisionStatus) {
	st.Failure, st.Spent, st.Paused = nil, nil, nil
	st.RaceNote, st.Hedge, st.Withdrawn = "", "", 0
	st.WaitsFor, st.WaitsGeneration = "", 0
	st.Started, st.Ended = time.Time{}, time.Time{}
}

// refusal returns what makes the error of an operation that a provision refuses. A hint has two verbs: the flag of the
// provision's project, and its name.
func refusal(op, fullName string) func(why, hint string) error {
	project, name := trivet.SplitName(fullName)
	in := ""
	if project != trivet.DefaultProject {
		in = " -p " + project
	}
	return func(why, hint string) error {
		return &trivet.Error{Op: op, Kind: "Provision", Name: trivet.ShortName(fullName),
			Err: fmt.Errorf("%w: %s", trivet.ErrConflict, why), Hint: fmt.Sprintf(hint, in, name)}
	}
}
