package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

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
		Example: "  trivet why m1\n  trivet why m1 --all\n  trivet why m1 -o json",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: a.completeNames("machines"),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := a.connect()
			if err != nil {
				return err
			}
			e, err := explainMachine(cmd.Context(), cl, args[0], all)
			if err != nil {
				return err
			}
			return a.showWhy(e)
		},
	}
	c.Flags().BoolVar(&all, "all", false, "include the events of earlier workflows")
	a.outputForms(c, "table", "json", "yaml")
	return c
}

// explanation is what explains the state of a machine.
type explanation struct {
	Machine  *trivet.Machine  `json:"machine"`
	Workflow *trivet.Workflow `json:"workflow,omitempty"`
	Events   []*trivet.Event  `json:"events,omitempty"` // in order
}

func explainMachine(ctx context.Context, cl *client.Client, machine string, all bool) (e explanation, err error) {
	m, err := client.Of[trivet.Machine](cl).Get(ctx, machine)
	if err != nil {
		return e, err
	}
	e.Machine = m
	if m.Status.Workflow != "" {
		e.Workflow, err = workflowBy(ctx, cl, trivet.Resolve("", m.Status.Workflow))
		if errors.Is(err, trivet.ErrNotFound) {
			e.Workflow, err = nil, nil
		}
		if err != nil {
			return e, err
		}
	}
	e.Events, err = eventsOf(ctx, cl, "machine/"+m.Name, m.UID)
	if w := e.Workflow; !all && w != nil {
		e.Events = slices.DeleteFunc(e.Events, func(e *trivet.Event) bool { return e.Spec.Workflow != w.ShortName() })
	}
	return e, err
}

func (a *app) showWhy(e explanation) error {
	if a.output != "table" {
		return a.showValue(e)
	}
	m := e.Machine
	fmt.Fprintf(a.Out, "Machine %s is %s", m.Name, cmp.Or(string(m.Status.State), "new"))
	if m.Status.Reason != "" {
		fmt.Fprintf(a.Out, ": %s", printable(m.Status.Reason))
	}
	fmt.Fprintln(a.Out)
	if m.Status.HoldsData != "" {
		fmt.Fprintf(a.Out, "Its disks hold the data of %s: no selector chooses it until trivet accept or release.\n",
			printable(m.Status.HoldsData))
	}
	if m.Spec.Cordoned {
		fmt.Fprintln(a.Out, "It is cordoned: no provisions are placed on it.")
	}
	if e.Workflow == nil {
		fmt.Fprintln(a.Out, "It has no workflow.")
	} else if err := a.printWorkflow(e.Workflow); err != nil {
		return err
	}
	return a.printEvents(e.Events)
}

// printWorkflow prints the failure and the steps of a workflow.
func (a *app) printWorkflow(w *trivet.Workflow) error {
	of := "of template " + w.Spec.Template
	if w.Spec.Release != "" {
		of = "releases the machine, " + string(w.Spec.Release)
	}
	fmt.Fprintf(a.Out, "Workflow %s %s: %s", w.ShortName(), of, w.Status.State)
	if w.Status.Resets > 0 {
		fmt.Fprintf(a.Out, "; its agent was lost %s", times(w.Status.Resets))
	}
	fmt.Fprintln(a.Out)
	if f := w.Status.Failure; f != nil {
		fmt.Fprintf(a.Out, "\nFailed step: %s (failure type: %s)\n  %s\n", cmp.Or(f.Step, "none"), f.Type,
			printable(f.Cause))
		if f.Console != "" {
			fmt.Fprintf(a.Out, "\nLast lines of its serial console:\n  %s\n",
				strings.ReplaceAll(f.Console, "\n", "\n  "))
		}
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
