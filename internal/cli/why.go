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
		Short: "Tell what happened to a machine, in order, and why it is as it is",
		Long: "Tell what happened to a machine: its last failure and that one's cause first, then the steps of its run, then\n" +
			"everything in order: DHCP, boot files, agent, actions, failures and what was done about them.",
		Example: "  trivet why m1\n  trivet why m1 --all",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: a.completeNames("machines"),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := a.connect()
			if err != nil {
				return err
			}
			return a.tellWhy(cmd.Context(), cl, args[0], all)
		},
	}
	c.Flags().BoolVar(&all, "all", false, "everything that is kept, not only the current or last run")
	return c
}

func (a *app) tellWhy(ctx context.Context, cl *client.Client, machine string, all bool) error {
	m, err := client.Of[trivet.Machine](cl).Get(ctx, machine)
	if err != nil {
		return err
	}
	fmt.Fprintf(a.Out, "%s is %s", m.Name, cmp.Or(string(m.Status.State), "new"))
	if m.Status.Reason != "" {
		fmt.Fprintf(a.Out, ": %s", printable(m.Status.Reason))
	}
	fmt.Fprintln(a.Out)
	if m.Spec.Cordoned {
		fmt.Fprintln(a.Out, "It is cordoned: no provision is placed on it.")
	}
	w, err := client.Of[trivet.Workflow](cl).Get(ctx, m.Status.Workflow)
	switch {
	case m.Status.Workflow == "" || errors.Is(err, trivet.ErrNotFound):
		fmt.Fprintln(a.Out, "It has no run.")
	case err != nil:
		return err
	default:
		if err := a.tellRun(w); err != nil {
			return err
		}
	}
	events, err := eventsOf(ctx, cl, "machine/"+machine)
	if err != nil {
		return err
	}
	if !all && w != nil {
		events = slices.DeleteFunc(events, func(e *trivet.Event) bool { return e.Spec.Workflow != w.Name })
	}
	return a.tellEvents(events)
}

// tellRun shows a run: its failure first, then its steps.
func (a *app) tellRun(w *trivet.Workflow) error {
	fmt.Fprintf(a.Out, "Run %s of template %s is %s", w.Name, w.Spec.Template, w.Status.State)
	if w.Status.Resets > 0 {
		fmt.Fprintf(a.Out, "; its agent was lost %s", times(w.Status.Resets))
	}
	fmt.Fprintln(a.Out)
	if f := w.Status.Failure; f != nil {
		fmt.Fprintf(a.Out, "\nFailure at %s, the fault of: %s\n  %s\n", cmp.Or(f.Step, "the run"), f.Type, printable(f.Cause))
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

// eventsOf gives what is kept of a subject, in order.
func eventsOf(ctx context.Context, cl *client.Client, subject string) ([]*trivet.Event, error) {
	events, _, err := client.Of[trivet.Event](cl).List(ctx, client.ListOptions{Fields: "spec.subject=" + subject})
	slices.SortFunc(events, func(x, y *trivet.Event) int { return cmp.Compare(x.Spec.Seq, y.Spec.Seq) })
	return events, err
}

func (a *app) tellEvents(events []*trivet.Event) error {
	if len(events) == 0 {
		return nil
	}
	fmt.Fprintln(a.Out)
	rows := [][]string{{"TIME", "EPOCH", "STEP", "EVENT", "WHAT"}}
	for _, e := range events {
		reason := e.Spec.Reason
		if e.Spec.Warning {
			reason = "! " + reason
		}
		rows = append(rows, []string{e.Spec.Time.UTC().Format("2006-01-02 15:04:05.000"), strconv.FormatInt(e.Spec.Epoch, 10),
			cmp.Or(e.Spec.Step, "-"), reason, printable(e.Spec.Message)})
	}
	return align(a.Out, rows)
}
