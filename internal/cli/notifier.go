package cli

import (
	"fmt"

	"github.com/spf13/cobra"
)

func (a *app) notifier() *cobra.Command {
	c := &cobra.Command{
		Use: "notifier", Short: "Test who is notified of events",
		Long: "Test who is notified of events. A notifier is a record: write it by trivet apply, read it by\n" +
			"trivet get notifiers and trivet describe notifier NAME.",
		Example: "  trivet apply -f notifier.yaml\n  trivet notifier test ops\n  trivet get notifiers",
	}
	c.AddCommand(a.notifierTest())
	return c
}

func (a *app) notifierTest() *cobra.Command {
	c := &cobra.Command{
		Use: "test NAME", Short: "Send a test event to the receiver of a notifier",
		Long: "Send a test event to the receiver of a notifier, from the head that serves this command, and show the\n" +
			"outcome. The exit status is 1 where the receiver did not acknowledge it. The event has type\n" +
			"io.github.trivet-project.Test and an ID that begins with test-. Events that wait are not sent earlier by it.",
		Example: "  trivet notifier test ops\n  trivet notifier test ops -o json",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: a.completeNames("notifiers"),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := a.connect()
			if err != nil {
				return err
			}
			outcome, err := cl.TestNotifier(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if a.output != "table" {
				if err := a.showValue(outcome); err != nil {
					return err
				}
			} else if outcome.Delivered {
				fmt.Fprintf(a.Out, "notifier/%s: %s delivered event %s in %s\n", args[0], printable(outcome.Head),
					printable(outcome.ID), outcome.Took)
			} else {
				fmt.Fprintf(a.Err, "notifier/%s: %s could not deliver: %s\n", args[0], printable(outcome.Head),
					printable(outcome.Error))
			}
			if !outcome.Delivered {
				return ExitError(1)
			}
			return nil
		},
	}
	a.outputForms(c, "table", "json", "yaml")
	return c
}
