package provision

import (
	"fmt"
	"time"

	"github.com/trivet-project/trivet"
)

// Retry returns the status of a provision that an operator retries after it failed: it waits for a machine as at first,
// and may use each one again. Its runs stay counted.
func Retry(st trivet.ProvisionStatus, fullName, by string) (trivet.ProvisionStatus, error) {
	project, name := trivet.SplitName(fullName)
	in := ""
	if project != trivet.DefaultProject {
		in = " -p " + project
	}
	refuse := func(why, hint string) (trivet.ProvisionStatus, error) {
		return st, &trivet.Error{Op: "retry", Kind: "Provision", Name: trivet.ShortName(fullName),
			Err: fmt.Errorf("%w: %s", trivet.ErrConflict, why), Hint: fmt.Sprintf(hint, in, name)}
	}
	switch {
	case st.State == trivet.ProvisionSucceeded:
		return refuse("it has succeeded",
			"to install again, delete it and create it again: trivet delete%s provision %s")
	case st.State.Waits() && st.Paused != nil:
		return refuse("it is paused", "resume it: trivet resume%s %s")
	case st.State.Waits():
		return refuse("it has not failed: it waits for a machine", "watch it: trivet provision%s %s --watch")
	case !st.State.Ended():
		return refuse("it has not failed: its run goes on", "watch it: trivet provision%s %s --watch")
	}
	st.State, st.Reason = trivet.ProvisionPending, "retried by "+by
	st.Failure, st.Spent, st.Paused = nil, nil, nil
	st.WaitsFor, st.WaitsGeneration = "", 0
	st.Started, st.Ended = time.Time{}, time.Time{}
	return st, nil
}
