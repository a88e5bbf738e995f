package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

func (a *app) logs() *cobra.Command {
	var options client.LogOptions
	var raw bool
	c := &cobra.Command{
		Use:   "logs WORKFLOW|MACHINE",
		Short: "Print the logs of a workflow's actions",
		Long: "Print the logs of a workflow's actions. The name of a machine means its current or last workflow.\n\n" +
			"Of an action that was repeated because the machine was reset or its agent was lost, the logs of the last\n" +
			"epoch are printed; --all prints those of earlier ones, too.\n\n" +
			"Control characters are printed escaped: the text is the machine's.",
		Example: "  trivet logs web1-1\n  trivet logs m1 -f\n  trivet logs m1 --action write-image",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: a.completeNames("workflows"),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := a.connect()
			if err != nil {
				return err
			}
			workflow, err := a.workflowOf(cmd.Context(), cl, args[0])
			if err != nil {
				return err
			}
			options.Project, workflow = trivet.SplitName(workflow)
			return a.printLogs(cmd.Context(), cl, workflow, options, raw)
		},
	}
	c.Flags().BoolVarP(&options.Follow, "follow", "f", false, "follow the logs until the workflow has ended")
	c.Flags().BoolVar(&options.All, "all", false, "print also the logs of earlier epochs")
	c.Flags().StringVar(&options.Action, "action", "", "print the logs of this action only")
	c.Flags().BoolVar(&raw, "raw", false, "print the text as the machine sent it, with control characters")
	return c
}

// workflowOf returns the full name of a workflow, given its name or that of its machine.
func (a *app) workflowOf(ctx context.Context, cl *client.Client, name string) (string, error) {
	full := trivet.FullName(a.project(), name)
	_, err := workflowBy(ctx, cl, full)
	if !errors.Is(err, trivet.ErrNotFound) {
		return full, err
	}
	m, machineErr := client.Of[trivet.Machine](cl).Get(ctx, name)
	switch {
	case errors.Is(machineErr, trivet.ErrNotFound):
		return "", fmt.Errorf("%s: %w: there is no workflow or machine of this name", name, trivet.ErrNotFound)
	case machineErr != nil:
		return "", machineErr
	case m.Status.Workflow == "":
		return "", fmt.Errorf("machine %s: %w: it has no workflow yet", name, trivet.ErrNotFound)
	}
	return trivet.Resolve("", m.Status.Workflow), nil
}

// printLogs prints the logs with a heading for each attempt of each action.
func (a *app) printLogs(ctx context.Context, cl *client.Client, workflow string, o client.LogOptions, raw bool) error {
	var last trivet.LogPiece
	lineStart := true
	out := a.Out
	if raw {
		out = a.screen
	}
	o.Missing = a.warnMissing
	for p, err := range cl.Logs(ctx, workflow, o) {
		if err != nil {
			return err
		}
		if p.LogKey != last.LogKey {
			if !lineStart {
				fmt.Fprintln(a.Out)
			}
			fmt.Fprintf(a.Out, "==> %s, epoch %d, attempt %d <==\n", p.Action, p.Epoch, p.Attempt)
		}
		text := p.Text
		if !raw {
			text = strings.ReplaceAll(text, "\r\n", "\n")
		}
		if _, err := io.WriteString(out, text); err != nil {
			return err
		}
		last, lineStart = p, strings.HasSuffix(p.Text, "\n")
	}
	if !lineStart {
		fmt.Fprintln(a.Out)
	}
	return nil
}

// warnMissing warns that the logs may be incomplete.
func (a *app) warnMissing(heads []string) {
	if len(heads) == 0 {
		fmt.Fprintln(a.Err, "trivet: all heads are reachable again; run the command again for the complete logs")
		return
	}
	fmt.Fprintf(a.Err, "trivet: warning: cannot reach %s; logs that only they have are missing\n",
		printable(strings.Join(heads, ", ")))
}
