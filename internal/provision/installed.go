package provision

import (
	"fmt"
	"time"

	"github.com/trivet-project/trivet"
)

// CheckInstalled refuses the statement that a machine runs what a provision wanted, where another one serves it, or is
// to.
func CheckInstalled(p *trivet.Provision) error {
	refuse := refusal("resolve", p.FullName())
	switch st := &p.Status; {
	case p.Spec.Head != nil:
		return refuse("it makes its machine a head, which has to join again", "install it again: trivet delete%s provision "+
			"%s, and then: trivet head promote "+p.Spec.Machine)
	case st.State == trivet.ProvisionSucceeded:
		return refuse("machine "+st.Machine+" serves it", "where it is another one by now, release that machine: trivet "+
			"delete%s provision %s; then apply the provision again")
	case st.State == trivet.ProvisionRunning:
		return refuse("its run on "+st.Machine+" goes on", "watch it: trivet provision%s %s --watch")
	}
	return nil
}

// Installed returns the status of a provision that a machine serves by the statement of an operator: run is that.
func Installed(st trivet.ProvisionStatus, run trivet.RaceRun, by string, now time.Time) trivet.ProvisionStatus {
	again(&st)
	st = ServedBy(st, run)
	st.State, st.Replaced, st.Race = trivet.ProvisionSucceeded, nil, nil
	st.Reason = fmt.Sprintf("%s states that machine %s runs it since before the recovery", by, run.Machine)
	st.Started, st.Ended = now, now
	return st
}
