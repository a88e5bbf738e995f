package provision

import (
	"fmt"
	"time"

	"github.com/trivet-project/trivet"
)

// Replace returns the status of a provision whose machine an operator replaces: it waits for another one, and may use as
// many alternatives as at first. run is its last one, which has succeeded, and has no failure.
func Replace(p *trivet.Provision, run Run, req trivet.ReplaceRequest, by string, now time.Time) trivet.ProvisionStatus {
	st := p.Status
	again(&st)
	st.Replaced = &trivet.ReplacedMachine{FormerMachine: former(run), By: by, Reason: req.Reason, Time: now}
	st.Reason = fmt.Sprintf("%s replaces %s", by, run.Machine.Name)
	leave(&st, run)
	return st
}

// CheckReplace refuses the replacement of a provision's machine unless one serves it that it may exchange.
func CheckReplace(p *trivet.Provision, req trivet.ReplaceRequest) error {
	refuse := refusal("replace", p.FullName())
	switch st := &p.Status; {
	case len(req.Reason) > trivet.MaxReplaceReason:
		return fmt.Errorf("%w: the reason has %d bytes; the maximum is %d", trivet.ErrTooLarge, len(req.Reason),
			trivet.MaxReplaceReason)
	case p.Spec.Machine != "":
		return refuse("it names its machine",
			"create one with a selector, or one that names the other machine, and delete this: trivet delete%s provision %s")
	case st.State == trivet.ProvisionFrozen:
		return refuse("it is frozen since the cluster was recovered", "decide first: trivet recover resolve%s %s")
	case st.State.Waits():
		return refuse("it has no machine: it waits for one", "watch it: trivet provision%s %s --watch")
	case !st.State.Ended():
		return refuse("its run on "+st.Machine+" goes on",
			"to use another machine: trivet quarantine "+st.Machine+" ends the run; then trivet retry%s %s")
	case st.State != trivet.ProvisionSucceeded:
		return refuse("it has failed, and no machine serves it", "give it another run: trivet retry%s %s")
	case req.Machine != "" && req.Machine != st.Machine:
		return refuse("machine "+st.Machine+" serves it, and not "+req.Machine, "see: trivet describe%s provision %s")
	}
	return nil
}
