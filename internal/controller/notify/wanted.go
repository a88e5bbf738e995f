package notify

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/notify"
	"github.com/trivet-project/trivet/internal/provision"
	"github.com/trivet-project/trivet/internal/state"
)

// wants reports whether a notifier sends an event: never one about itself.
func (c *Controller) wants(n *trivet.Notifier, e *trivet.Event) bool {
	switch {
	case e.Spec.Subject == "notifier/"+n.Name:
		return false
	case len(n.Spec.Events) > 0:
		return slices.Contains(n.Spec.Events, e.Spec.Reason)
	case e.Spec.Reason == trivet.ReasonSucceeded:
		p := c.provisionOf(e)
		return p != nil && provision.Last(&p.Status) != nil
	}
	return slices.Contains(trivet.DefaultNotifications, e.Spec.Reason)
}

// refTo returns how the status of a notifier refers to an event: the name may be used again for a later one.
func refTo(e *trivet.Event) string { return fmt.Sprintf("%s@%d", e.Name, e.Revision) }

// event returns the event of a reference; nil: it is gone.
func (c *Controller) event(ctx context.Context, ref string) (*trivet.Event, error) {
	name, text, _ := strings.Cut(ref, "@")
	revision, _ := strconv.ParseInt(text, 10, 64)
	e, err := c.Tables.Events.Get(ctx, name)
	if errors.Is(err, trivet.ErrNotFound) || err == nil && e.Revision != revision {
		return nil, nil
	}
	return e, err
}

// message returns what is sent of an event. Its ID is that of the event at its revision, as the record's name and UID
// are used again.
func (c *Controller) message(e *trivet.Event) notify.Message {
	data := notify.Data{Reason: e.Spec.Reason, Message: e.Spec.Message, Warning: e.Spec.Warning, Step: e.Spec.Step,
		Workflow: e.Spec.Workflow, Head: e.Spec.Head}
	kind, name, _ := strings.Cut(e.Spec.Subject, "/")
	data.Hint = fmt.Sprintf("trivet describe %s %s", kind, name)
	if kind == "machine" {
		data.Hint = "trivet why " + name
		data.Machine = c.machine(name)
	}
	if p := c.provisionOf(e); p != nil {
		data.Provision = &notify.Provision{Name: p.ShortName(), State: string(p.Status.State),
			Machine: c.machine(p.Status.Machine)}
		for i := range p.Status.Spent {
			if m := c.machine(p.Status.Spent[i].Machine); m != nil {
				data.Provision.Failed = append(data.Provision.Failed, *m)
			}
		}
	}
	id := fmt.Sprintf("%s-%d", e.UID, e.Revision)
	return notify.New(id, c.Cluster, e.Spec.Subject, e.Spec.Time, data)
}

// provisionOf returns the provision of the run that an event is about; nil: there is none.
func (c *Controller) provisionOf(e *trivet.Event) *trivet.Provision {
	if e.Spec.Workflow == "" {
		return nil
	}
	// the store bounds the read of a former run
	w, err := c.Tables.Workflows.Find(context.Background(), trivet.Resolve("", e.Spec.Workflow))
	if err != nil || w.Spec.Provision == "" {
		return nil
	}
	p, err := c.Tables.Provisions.GetShared(trivet.Resolve(w.Project, w.Spec.Provision))
	if err != nil || p.UID != w.Spec.ProvisionUID {
		return nil
	}
	return p
}

// machine returns a machine as it is now; nil: there is none.
func (c *Controller) machine(name string) *notify.Machine {
	if name == "" {
		return nil
	}
	m, err := c.Tables.Machines.GetShared(name)
	if err != nil {
		return nil
	}
	shown := &notify.Machine{Name: name, State: string(m.Status.State), Rack: m.Spec.Rack}
	for _, nic := range m.Spec.NICs {
		for _, a := range c.Tables.Addresses.SharedBy(state.ByMAC, nic.MAC) {
			shown.Addresses = append(shown.Addresses, a.Name)
		}
	}
	if m.Spec.BMC != nil {
		shown.BMC = m.Spec.BMC.Host()
	}
	return shown
}
