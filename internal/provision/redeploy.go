package provision

import (
	"fmt"

	"github.com/trivet-project/trivet"
)

// Redeploy returns the status of a provision whose machine is installed again for an operator: where that fails, it may
// use as many alternatives as at first. A second machine does not race with it, as it would serve the provision then.
func Redeploy(p *trivet.Provision) trivet.ProvisionStatus {
	st := p.Status
	again(&st)
	st.Replaced = nil
	if p.Spec.Race != 0 || p.Spec.Hedge {
		st.RaceNote = "no race: it is installed again on the machine that serves it"
	}
	return st
}

// CheckRedeploy refuses to install a provision's machine again unless one serves it.
func CheckRedeploy(p *trivet.Provision, req trivet.RedeployRequest) error {
	refuse := refusal("redeploy", p.FullName())
	switch st := &p.Status; {
	case len(req.Reason) > trivet.MaxRedeployReason:
		return fmt.Errorf("%w: the reason has %d bytes; the maximum is %d", trivet.ErrTooLarge, len(req.Reason),
			trivet.MaxRedeployReason)
	case st.State == trivet.ProvisionFrozen:
		return refuse("it is frozen since the cluster was recovered", "decide first: trivet recover resolve%s %s")
	case st.State.Waits() && st.Paused != nil:
		return refuse("it is paused, and has no machine yet", "resume it: trivet resume%s %s")
	case st.State.Waits():
		return refuse("it has no machine: it waits for one", "watch it: trivet provision%s %s --watch")
	case !st.State.Ended() && st.Paused != nil:
		return refuse("its run on "+st.Machine+" is paused", "resume it: trivet resume%s %s")
	case !st.State.Ended():
		return refuse("its run on "+st.Machine+" goes on",
			"to begin again: trivet quarantine "+st.Machine+" ends the run; then trivet retry%s %s --same-machine --accept")
	case st.State != trivet.ProvisionSucceeded:
		return refuse("it has failed", "install it again: trivet retry%s %s --same-machine --accept")
	}
	return nil
}
