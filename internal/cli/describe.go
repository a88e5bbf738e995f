package cli

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

func (a *app) describe() *cobra.Command {
	return &cobra.Command{
		Use:     "describe KIND NAME",
		Short:   "Show a record with the steps of its run and its latest events",
		Example: "  trivet describe machine m1\n  trivet describe provision web1",
		Args:    cobra.ExactArgs(2), ValidArgsFunction: a.completeRecords,
		RunE: func(cmd *cobra.Command, args []string) error {
			kind, err := a.kind(args[0])
			if err != nil {
				return err
			}
			raw, err := kind.Raw(cmd.Context(), args[1])
			if err != nil {
				return err
			}
			if err := a.showYAML([]json.RawMessage{raw}); err != nil {
				return err
			}
			r := kind.Info.New()
			if err := json.Unmarshal(raw, r); err != nil {
				return err
			}
			return a.describeMore(cmd.Context(), kind.Client(), r)
		},
	}
}

// describeMore prints the run and the events of a record.
func (a *app) describeMore(ctx context.Context, cl *client.Client, r trivet.Record) error {
	machine, uid, workflow := "", "", "" // workflow: the name as the record has it
	switch r := r.(type) {
	case *trivet.Machine:
		machine, uid, workflow = r.Name, r.UID, r.Status.Workflow
	case *trivet.Provision:
		machine, uid, workflow = r.Status.Machine, r.Status.MachineUID, r.Status.Workflow
	case *trivet.Workflow:
		machine, uid, workflow = r.Spec.Machine, r.Spec.MachineUID, r.FullName()
	case *trivet.Notifier:
		return a.printLatest(ctx, cl, "notifier/"+r.Name, r.UID)
	default:
		return nil
	}
	if workflow != "" {
		if w, err := workflowBy(ctx, cl, trivet.Resolve(r.Header().Project, workflow)); err == nil {
			fmt.Fprintln(a.Out)
			if err := a.printWorkflow(w); err != nil {
				return err
			}
		}
	}
	if machine == "" {
		return nil
	}
	return a.printLatest(ctx, cl, "machine/"+machine, uid)
}

// printLatest prints the latest events of a subject.
func (a *app) printLatest(ctx context.Context, cl *client.Client, subject, uid string) error {
	events, err := eventsOf(ctx, cl, subject, uid)
	if err != nil {
		return err
	}
	return a.printEvents(events[max(0, len(events)-latest):])
}

// latest is the number of events that describe prints; why prints all.
const latest = 15
