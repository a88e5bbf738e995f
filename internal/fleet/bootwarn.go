package fleet

import (
	"context"
	"fmt"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/workflow"
)

// errAgentAtWork: the machine's run is held by an agent that was heard a moment ago.
var errAgentAtWork = fmt.Errorf("%w: another agent of this machine is at work", trivet.ErrUnavailable)

// isAgentAtWork reports whether the agent that holds the run was heard a moment ago. A host that boots as this machine
// meanwhile is not believed to be it.
func (f *Fleet) isAgentAtWork(t *transition) bool {
	st := &t.machine.Status
	if t.run == nil || f.AgentSilence == nil || t.workflow.Status.State != trivet.WorkflowRunning ||
		t.workflow.Status.Epoch != st.Epoch {
		return false
	}
	return f.AgentSilence(t.machine.Name, st.Epoch) < workflow.ResetSilence(t.site.AgentTimeoutOrDefault().D())
}

// warnOfHello records that a hello was refused because another agent has registered in the same boot, or is at work.
func (f *Fleet) warnOfHello(ctx context.Context, machine string) error {
	return f.onMachine(ctx, "record refused hello", machine, func(t *transition) error {
		if t.machine.Status.AgentKey == "" { // a remedy made the boot token void
			return errUnchanged
		}
		return t.warnOnce(trivet.ReasonHelloRefused, "a second agent sent a hello as this machine and was refused: "+
			"if the machine was not just reset, another host has used its boot script; compare the inventory")
	})
}

// warnOnce records a warning about the machine's boot, once per epoch.
func (t *transition) warnOnce(reason, message string) error {
	st := &t.machine.Status
	if last, ok := st.Warned[reason]; ok && last == st.Epoch {
		return errUnchanged
	}
	if st.Warned == nil {
		st.Warned = map[string]int64{}
	}
	st.Warned[reason] = st.Epoch
	t.event(reason, "%s", message)
	t.events[len(t.events)-1].Warning = true
	return nil
}
