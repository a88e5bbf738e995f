package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

func (a *app) why() *cobra.Command {
	var all bool
	c := &cobra.Command{
		Use:   "why MACHINE",
		Short: "Explain the state of a machine",
		Long: "Explain the state of a machine: its last failure with the cause, the steps of its workflow, and\n" +
			"all events in order: DHCP, boot files, agent, actions, failures and remedies.",
		Example: "  trivet why m1\n  trivet why m1 --all",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: a.completeNames("machines"),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := a.connect()
			if err != nil {
				return err
			}
			return a.printWhy(cmd.Context(), cl, args[0], all)
		},
	}
	c.Flags().BoolVar(&all, "all", false, "include the events of earlier workflows")
	return c
}

func (a *app) printWhy(ctx context.Context, cl *client.Client, machine string, all bool) error {
	m, err := client.Of[trivet.Machine](cl).Get(ctx, machine)
	if err != nil {
		return err
	}
	fmt.Fprintf(a.Out, "Machine %s is %s", m.Name, cmp.Or(string(m.Status.State), "new"))
	if m.Status.Reason != "" {
		fmt.Fprintf(a.Out, ": %s", printable(m.Status.Reason))
	}
	fmt.Fprintln(a.Out)
	if m.Spec.Cordoned {
		fmt.Fprintln(a.Out, "It is cordoned: no provisions are placed on it.")
	}
	w, err := workflowBy(ctx, cl, trivet.Resolve("", m.Status.Workflow))
	switch {
	case m.Status.Workflow == "" || errors.Is(err, trivet.ErrNotFound):
		fmt.Fprintln(a.Out, "It has no workflow.")
	case err != nil:
		return err
	default:
		if err := a.printWorkflow(w); err != nil {
			return err
		}
	}
	events, err := eventsOf(ctx, cl, "machine/"+m.Name, m.UID)
	if err != nil {
		return err
	}
	if !all && w != nil {
		events = slices.DeleteFunc(events, func(e *trivet.Event) bool { return e.Spec.Workflow != w.ShortName() })
	}
	return a.printEvents(events)
}

// printWorkflow prints the failure and the steps of a workflow.
func (a *app) printWorkflow(w *trivet.Workflow) error {
	fmt.Fprintf(a.Out, "Workflow %s of template %s: %s", w.ShortName(), w.Spec.Template, w.Status.State)
	if w.Status.Resets > 0 {
		fmt.Fprintf(a.Out, "; its agent was lost %s", times(w.Status.Resets))
	}
	fmt.Fprintln(a.Out)
	if f := w.Status.Failure; f != nil {
		fmt.Fprintf(a.Out, "\nFailed step: %s (failure type: %s)\n  %s\n", cmp.Or(f.Step, "none"), f.Type,
			printable(f.Cause))
	}
	fmt.Fprintln(a.Out)
	return align(a.Out, stepRows(w))
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return strconv.Itoa(n) + " times"
}

// eventsOf returns the events of a subject, in order. An earlier one of its name has its own.
func eventsOf(ctx context.Context, cl *client.Client, subject, uid string) ([]*trivet.Event, error) {
	events, _, err := client.Of[trivet.Event](cl).List(ctx,
		client.ListOptions{Fields: "spec.subject=" + subject + ",spec.subjectUID=" + uid})
	slices.SortFunc(events, func(x, y *trivet.Event) int { return cmp.Compare(x.Spec.Seq, y.Spec.Seq) })
	return events, err
}

func (a *app) printEvents(events []*trivet.Event) error {
	if len(events) == 0 {
		return nil
	}
	fmt.Fprintln(a.Out)
	rows := [][]string{{"TIME", "EPOCH", "STEP", "REASON", "MESSAGE"}}
	for _, e := range events {
		reason := e.Spec.Reason
		if e.Spec.Warning {
			reason = "! " + reason
		}
		rows = append(rows, []string{e.Spec.Time.UTC().Format("2006-01-02 15:04:05.000"),
			strconv.FormatInt(e.Spec.Epoch, 10),
			cmp.Or(e.Spec.Step, "-"), reason, printable(e.Spec.Message)})
	}
	return align(a.Out, rows)
}
