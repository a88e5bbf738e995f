package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/learnt"
)

func (a *app) describe() *cobra.Command {
	c := &cobra.Command{
		Use:     "describe KIND NAME",
		Short:   "Show a record with the steps of its run and its latest events",
		Example: "  trivet describe machine m1\n  trivet describe provision web1 -o json",
		Args:    cobra.ExactArgs(2), ValidArgsFunction: a.completeRecords,
		RunE: func(cmd *cobra.Command, args []string) error {
			kind, err := a.kind(args[0])
			if err != nil {
				return err
			}
			d, err := describeRecord(cmd.Context(), kind, args[1])
			if err != nil {
				return err
			}
			return a.showDescription(d)
		},
	}
	a.outputForms(c, "table", "json", "yaml")
	return c
}

// description is a record with what is known of it besides.
type description struct {
	Record   json.RawMessage  `json:"record"`
	Workflow *trivet.Workflow `json:"workflow,omitempty"` // the machine's or provision's run; a workflow's own
	ETA      *learnt.ETA      `json:"eta,omitempty"`      // of the workflow
	Notes    []string         `json:"notes,omitempty"`    // of a machine: its disks that fail
	Events   []*trivet.Event  `json:"events,omitempty"`   // the latest ones, in order
}

func describeRecord(ctx context.Context, kind client.Kind, name string) (d description, err error) {
	if d.Record, err = kind.Raw(ctx, name); err != nil {
		return d, err
	}
	r := kind.Info.New()
	if err := json.Unmarshal(d.Record, r); err != nil {
		return d, err
	}
	machine, uid, workflow := "", "", "" // workflow: the name as the record has it
	switch r := r.(type) {
	case *trivet.Machine:
		machine, uid, workflow = r.Name, r.UID, r.Status.Workflow
		d.Notes = diskNotes(r)
	case *trivet.Provision:
		machine, uid, workflow = r.Status.Machine, r.Status.MachineUID, r.Status.Workflow
	case *trivet.Workflow:
		machine, uid, workflow = r.Spec.Machine, r.Spec.MachineUID, r.FullName()
	case *trivet.Notifier:
		d.Events, err = latestOf(ctx, kind.Client(), "notifier/"+r.Name, r.UID)
	case *trivet.BackupSchedule:
		d.Events, err = latestOf(ctx, kind.Client(), "backupschedule/"+r.Name, r.UID)
	case *trivet.Site:
		d.Events, err = latestOf(ctx, kind.Client(), "site/"+r.Name, r.UID)
	}
	if workflow != "" {
		d.Workflow, err = workflowBy(ctx, kind.Client(), trivet.Resolve(r.Header().Project, workflow))
		if errors.Is(err, trivet.ErrNotFound) {
			d.Workflow, err = nil, nil
		}
	}
	d.ETA = etaOf(d.Workflow)
	if err == nil && machine != "" {
		d.Events, err = latestOfMachine(ctx, kind.Client(), machine, uid)
	}
	return d, err
}

// latestOfMachine returns the latest events of a machine, which may be gone.
func latestOfMachine(ctx context.Context, cl *client.Client, name, uid string) ([]*trivet.Event, error) {
	m, err := client.Of[trivet.Machine](cl).Get(ctx, name)
	if errors.Is(err, trivet.ErrNotFound) || err == nil && m.UID != uid {
		return latestOf(ctx, cl, "machine/"+name, uid)
	}
	if err != nil {
		return nil, err
	}
	events, err := eventsOfMachine(ctx, cl, m)
	return events[max(0, len(events)-latest):], err
}

// latestOf returns the latest events of a subject.
func latestOf(ctx context.Context, cl *client.Client, subject, uid string) ([]*trivet.Event, error) {
	events, err := eventsOf(ctx, cl, subject, uid)
	return events[max(0, len(events)-latest):], err
}

func (a *app) showDescription(d description) error {
	d.Record = a.withoutManaged([]json.RawMessage{d.Record})[0]
	if a.output != "table" {
		return a.showValue(d)
	}
	if err := a.showYAML([]json.RawMessage{d.Record}); err != nil {
		return err
	}
	if len(d.Notes) > 0 {
		fmt.Fprintln(a.Out)
		a.printNotes(d.Notes)
	}
	if d.Workflow != nil {
		fmt.Fprintln(a.Out)
		if err := a.printWorkflow(d.Workflow); err != nil {
			return err
		}
	}
	return a.printEvents(d.Events)
}

// latest is the number of events that describe prints; why prints all.
const latest = 15
