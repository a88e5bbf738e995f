// Package fleet holds what can happen to a machine and its run: a claim, a hello, a batch of reports, a sighting, a passed
// deadline, a release. Each is one method and one transaction, whoever causes it: the API, netboot or a controller. The
// rules are in internal/workflow; here is what they are applied to, and what is written together.
package fleet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/faultinject"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/workflow"
)

// Fleet is the machines and their runs.
type Fleet struct {
	*state.Tables
	// AgentUp reports whether the agent of an epoch was heard within a duration. Where it is nil, no agent is up.
	AgentUp func(machine string, epoch int64, within time.Duration) bool
	head    string // the head that writes, for events
	log     *slog.Logger
	now     func() time.Time
}

// New gives the fleet of a store. head is the name of the head that acts.
func New(tables *state.Tables, head string, log *slog.Logger) *Fleet {
	return &Fleet{Tables: tables, head: head, log: log, now: time.Now}
}

// errUnchanged ends a transaction that found nothing to do.
var errUnchanged = errors.New("nothing to do")

// change is one happening: the machine and its run as they were read, and what happened to them.
type change struct {
	tx       *store.Tx
	machine  *trivet.Machine
	workflow *trivet.Workflow // nil where the machine has none
	run      *workflow.Run    // over workflow's status
	site     trivet.SiteSpec
	running  bool // the run had not ended when it was read
	happened []workflow.Happening
}

func (c *change) tell(reason, format string, args ...any) {
	c.happened = append(c.happened, workflow.Happening{Reason: reason, Message: fmt.Sprintf(format, args...)})
}

// mine is what the rules know of the machine.
func (c *change) mine() workflow.Machine { return workflow.Machine{Power: c.machine.Spec.BMC != nil} }

// onMachine runs one happening to a machine in one transaction. do may run several times.
func (f *Fleet) onMachine(ctx context.Context, op, machine string, do func(c *change) error) error {
	err := f.update(ctx, func(tx *store.Tx) error {
		c, err := f.read(tx, machine)
		if err != nil {
			return err
		}
		if err := do(c); err != nil {
			return err
		}
		return f.write(c)
	})
	if err != nil {
		return &trivet.Error{Op: op, Kind: "Machine", Name: machine, Err: err}
	}
	return nil
}

// update is one transaction; one that finds nothing to do is a success.
func (f *Fleet) update(ctx context.Context, do func(tx *store.Tx) error) error {
	if _, err := f.Store.Update(ctx, do); err != nil && !errors.Is(err, errUnchanged) {
		return err
	}
	return nil
}

func (f *Fleet) read(tx *store.Tx, machine string) (*change, error) {
	m, err := f.Machines.In(tx).Get(machine)
	if err != nil {
		return nil, err
	}
	c := &change{tx: tx, machine: m, site: f.siteIn(tx)}
	if m.Status.Workflow == "" {
		return c, nil
	}
	w, err := f.Workflows.In(tx).Get(m.Status.Workflow)
	if errors.Is(err, trivet.ErrNotFound) {
		return c, nil
	}
	if err != nil {
		return nil, err
	}
	c.adopt(w, f.now())
	return c, nil
}

// adopt makes a workflow the change's own.
func (c *change) adopt(w *trivet.Workflow, now time.Time) {
	c.workflow, c.running = w, !w.Status.State.Ended()
	c.run = &workflow.Run{Spec: &w.Spec, Status: &w.Status, Now: now, MaxResets: resets(c.site)}
}

// write puts the machine, its run, its provision and what happened into the transaction.
func (f *Fleet) write(c *change) error {
	if c.workflow != nil {
		c.happened = append(c.happened, c.run.Happened...)
		if c.running && c.workflow.Status.State.Ended() {
			if err := f.settle(c); err != nil {
				return err
			}
		}
		if err := f.Workflows.In(c.tx).Put(c.workflow); err != nil {
			return err
		}
	}
	if err := f.writeEvents(c); err != nil {
		return err
	}
	return f.Machines.In(c.tx).Put(c.machine)
}

// writeEvents numbers what happened and puts it into the machine's ring.
func (f *Fleet) writeEvents(c *change) error {
	for _, h := range c.happened {
		c.machine.Status.Events++
		e := &trivet.Event{
			Meta: trivet.Meta{Kind: "Event", Name: trivet.EventName(c.machine.Name, c.machine.Status.Events)},
			Spec: trivet.EventSpec{
				Subject: "machine/" + c.machine.Name, Seq: c.machine.Status.Events, Time: f.now(), Reason: h.Reason,
				Message: h.Message, Step: h.Step, Epoch: c.machine.Status.Epoch, Warning: h.Warning, Head: f.head,
				Workflow: c.machine.Status.Workflow,
			},
		}
		if err := f.Events.In(c.tx).Put(e); err != nil {
			return err
		}
	}
	return nil
}

func (f *Fleet) siteIn(tx *store.Tx) trivet.SiteSpec {
	site, err := f.Sites.In(tx).Get(trivet.SiteName)
	if err != nil { // a site without the record has the defaults
		return trivet.SiteSpec{}
	}
	return site.Spec
}

// Self is the name of this head.
func (f *Fleet) Self() string { return f.head }

// Site is the site's configuration as this head knows it.
func (f *Fleet) Site() trivet.SiteSpec {
	site, err := f.Sites.Get(trivet.SiteName)
	if err != nil {
		return trivet.SiteSpec{}
	}
	return site.Spec
}

func resets(s trivet.SiteSpec) int {
	if s.Resets == 0 {
		return trivet.DefaultResets
	}
	return s.Resets
}

// raise gives the machine a new epoch that no agent has: whoever holds an older one is refused.
func raise(m *trivet.Machine) {
	m.Status.Epoch++
	if faultinject.OldEpoch {
		m.Status.Epoch = 0
	}
	m.Status.AgentKey, m.Status.BootID = "", ""
}
