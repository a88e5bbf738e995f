package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

func (a *app) logs() *cobra.Command {
	var options client.LogOptions
	c := &cobra.Command{
		Use:     "logs WORKFLOW|MACHINE",
		Short:   "Show what the actions of a run wrote",
		Long:    "Show what the actions of a run wrote. A machine's name means its current or last run.",
		Example: "  trivet logs web1-1\n  trivet logs m1 -f\n  trivet logs m1 --action write-image",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: a.completeNames("workflows"),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := a.connect()
			if err != nil {
				return err
			}
			workflow, err := workflowOf(cmd.Context(), cl, args[0])
			if err != nil {
				return err
			}
			return a.printLogs(cmd.Context(), cl, workflow, options)
		},
	}
	c.Flags().BoolVarP(&options.Follow, "follow", "f", false, "go on until the run has ended")
	c.Flags().StringVar(&options.Action, "action", "", "of this action only")
	return c
}

// workflowOf takes the name of a workflow or of a machine that has one.
func workflowOf(ctx context.Context, cl *client.Client, name string) (string, error) {
	_, err := client.Of[trivet.Workflow](cl).Get(ctx, name)
	if !errors.Is(err, trivet.ErrNotFound) {
		return name, err
	}
	m, machineErr := client.Of[trivet.Machine](cl).Get(ctx, name)
	switch {
	case errors.Is(machineErr, trivet.ErrNotFound):
		return "", fmt.Errorf("%s: %w: neither a workflow nor a machine has this name", name, trivet.ErrNotFound)
	case machineErr != nil:
		return "", machineErr
	case m.Status.Workflow == "":
		return "", fmt.Errorf("machine %s: %w: it has had no run yet", name, trivet.ErrNotFound)
	}
	return m.Status.Workflow, nil
}

// printLogs writes the text under a heading for each try of each action.
func (a *app) printLogs(ctx context.Context, cl *client.Client, workflow string, o client.LogOptions) error {
	var last trivet.LogPiece
	fresh := true // at the beginning of a line
	o.Missing = a.tellMissing
	for p, err := range cl.Logs(ctx, workflow, o) {
		if err != nil {
			return err
		}
		if p.Action != last.Action || p.Attempt != last.Attempt {
			if !fresh {
				fmt.Fprintln(a.Out)
			}
			fmt.Fprintf(a.Out, "==> %s, attempt %d <==\n", p.Action, p.Attempt)
		}
		if _, err := fmt.Fprint(a.Out, withoutControls(p.Text)); err != nil {
			return err
		}
		last, fresh = p, strings.HasSuffix(p.Text, "\n")
	}
	if !fresh {
		fmt.Fprintln(a.Out)
	}
	return nil
}

// tellMissing says that a log may not be whole.
func (a *app) tellMissing(heads []string) {
	if len(heads) == 0 {
		fmt.Fprintln(a.Err, "trivet: all heads can be asked again; what was left out is there when you ask anew")
		return
	}
	fmt.Fprintf(a.Err, "trivet: %s cannot be asked: what only they have of this log is left out\n", printable(strings.Join(heads, ", ")))
}

// withoutControls keeps lines and tabs, and takes out what could command a terminal.
func withoutControls(s string) string {
	var b strings.Builder
	for line := range strings.SplitAfterSeq(s, "\n") {
		text, ended := strings.CutSuffix(line, "\n")
		for i, cell := range strings.Split(strings.TrimSuffix(text, "\r"), "\t") {
			if i > 0 {
				b.WriteByte('\t')
			}
			b.WriteString(printable(cell))
		}
		if ended {
			b.WriteByte('\n')
		}
	}
	return b.String()
}
