package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/faultinject"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/workflow"
)

// transition is one change of a machine and its run within a transaction: what was read, what changes, and the events
// of that.
type transition struct {
	tx       *store.Tx
	machine  *trivet.Machine
	workflow *trivet.Workflow // nil where the machine has none
	run      *workflow.Run    // over workflow's status
	site     trivet.SiteSpec
	active   bool                  // the run had not ended when it was read
	wasOff   bool                  // the machine was to be powered off when it was read
	isOff    bool                  // its BMC reports it off now
	was      trivet.WorkflowStatus // the run's, when it was read
	events   []workflow.Event
}

func (t *transition) event(reason, format string, args ...any) {
	t.events = append(t.events, workflow.Event{Reason: reason, Message: fmt.Sprintf(format, args...)})
}

// ruleMachine returns what the rules know of the machine.
func (t *transition) ruleMachine() workflow.Machine {
	return workflow.Machine{Power: t.machine.Spec.BMC != nil}
}

// onMachine runs one transition of a machine in one transaction. do may run several times.
func (f *Fleet) onMachine(ctx context.Context, op, machine string, do func(t *transition) error) error {
	err := f.update(ctx, func(tx *store.Tx) error {
		t, err := f.load(tx, machine)
		if err != nil {
			return err
		}
		if err := do(t); err != nil {
			return err
		}
		return f.save(t)
	})
	if err != nil {
		return f.RenamedTo(op, machine, &trivet.Error{Op: op, Kind: "Machine", Name: machine, Err: err})
	}
	return nil
}

// load reads a machine and its run.
func (f *Fleet) load(tx *store.Tx, machine string) (*transition, error) {
	m, err := f.Machines.In(tx).Get(machine)
	if err != nil {
		return nil, err
	}
	t := &transition{tx: tx, machine: m, site: f.siteIn(tx), wasOff: wantsOff(m)}
	if m.Status.Workflow == "" {
		return t, nil
	}
	w, err := f.Workflows.In(tx).Get(trivet.Resolve("", m.Status.Workflow))
	if errors.Is(err, trivet.ErrNotFound) || err == nil && w.Spec.MachineUID != m.UID {
		return t, nil
	}
	if err != nil {
		return nil, err
	}
	t.setRun(w, f.now())
	return t, nil
}

// setRun makes a workflow the machine's run.
func (t *transition) setRun(w *trivet.Workflow, now time.Time) {
	t.workflow, t.active = w, !w.Status.State.Ended()
	t.was = w.Status
	t.was.Steps = slices.Clone(w.Status.Steps)
	t.run = &workflow.Run{Spec: &w.Spec, Status: &w.Status, Now: now, MaxResets: maxResets(t.site, w)}
}

// save writes the machine, its run, its provision and the events.
func (f *Fleet) save(t *transition) error {
	if t.workflow != nil {
		t.events = append(t.events, t.run.Events...)
		f.powerOff(t)
		if t.active && t.workflow.Status.State.Ended() {
			if err := f.finish(t); err != nil {
				return err
			}
		}
		if err := f.Workflows.In(t.tx).Put(t.workflow); err != nil {
			return err
		}
		if f.Metrics != nil {
			t.tx.AfterCommit(func() { f.Metrics.transition(&t.workflow.Spec, &t.was, &t.workflow.Status) })
		}
	}
	if t.machine.Status.State == trivet.MachineReleasing { // its power intent may have changed
		t.explainRelease()
	}
	if t.wasOff && !wantsOff(t.machine) {
		if err := f.endPowerWait(t); err != nil {
			return err
		}
	}
	if err := f.saveEvents(t); err != nil {
		return err
	}
	return f.Machines.In(t.tx).Put(t.machine)
}

func wantsOff(m *trivet.Machine) bool { return m.Status.Intent != nil && m.Status.Intent.Want == "off" }

// saveEvents numbers the events and writes them into the machine's ring.
func (f *Fleet) saveEvents(t *transition) error {
	st := &t.machine.Status
	for _, e := range t.events {
		st.Events++
		record := &trivet.Event{
			Meta: trivet.Meta{Kind: "Event", Name: trivet.EventName(t.machine.UID, st.Events)},
			Spec: trivet.EventSpec{
				Subject: "machine/" + t.machine.Name, SubjectUID: t.machine.UID, Seq: st.Events, Time: f.now(),
				Reason: e.Reason, Message: e.Message, Step: e.Step, Epoch: st.Epoch, Warning: e.Warning,
				Head: f.head, Workflow: st.Workflow,
			},
		}
		if err := f.Events.In(t.tx).Put(record); err != nil {
			return err
		}
		f.logEvent(t.tx, t.machine.Name, &record.Spec)
	}
	return nil
}

// raiseEpoch assigns the machine an epoch that no agent has: an agent with an older one is refused.
func (t *transition) raiseEpoch() {
	st := &t.machine.Status
	st.Epoch++
	if faultinject.OldEpoch {
		st.Epoch = 0
	}
	st.AgentKey, st.BootID = "", ""
}
