package netboot

import (
	"context"

	"github.com/trivet-project/trivet"
)

// Seen notes that a machine was seen at a boot step, by one transaction. epoch is the machine's as this head knew it then.
type Seen func(ctx context.Context, machine, step string, epoch int64) error

// sighting is one machine at one step of one boot. One that gets lost is no harm: the boot's next step says as much, and
// the agent's hello all of it.
type sighting struct {
	machine string
	step    string
	epoch   int64
}

// seen notes that a machine with a run to boot for was seen at a step, if that is news.
func (d *Door) seen(h host, step string) {
	if h.machine != nil && h.workflow != nil && news(h.workflow, step) {
		d.sightings.add(sighting{machine: h.machine.Name, step: step, epoch: h.machine.Status.Epoch})
	}
}

func (d *Door) writeSighting(ctx context.Context, s sighting) error {
	return d.Seen(ctx, s.machine, s.step, s.epoch)
}

// news says whether a sighting would tell the run anything: that it got further on its way to the agent's hello or, while
// an agent holds it, that the machine began to boot anew.
func news(w *trivet.Workflow, step string) bool {
	switch w.Status.State {
	case trivet.WorkflowRunning:
		return step == trivet.StepScript
	case trivet.WorkflowBooting:
		s := w.Status.Step(step)
		return s != nil && (s.State == trivet.StepWaiting || s.State == trivet.StepRunning)
	}
	return false
}
