package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/trivet-project/trivet"
)

func (a *app) retry() *cobra.Command {
	var req trivet.RetryRequest
	c := &cobra.Command{
		Use:   "retry PROVISION|WORKFLOW",
		Short: "Give a provision that failed another run",
		Long: "Give a provision that failed, or whose run was cancelled, another run.\n\n" +
			"By default it begins again, with the template as it is now, on a machine that is chosen as the first\n" +
			"one was: by its selector, or the machine that it names. The machines that it has failed on may be\n" +
			"used again once they are accepted.\n\n" +
			"With --step it goes on with that action on the machine of its last run, and the actions before it are\n" +
			"not done again, except a seed. The actions are those of the last run. That is refused where one before\n" +
			"is not done, and where the machine has booted its disk or had another run since.",
		Example: "  trivet retry web1\n  trivet retry web1 --same-machine --accept\n  trivet retry web1-1 --step image",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: a.completeNames("provisions"),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := a.connect()
			if err != nil {
				return err
			}
			name, err := a.provisionOf(cmd.Context(), cl, args[0])
			if err != nil {
				return err
			}
			if err := cl.Retry(cmd.Context(), a.project(), name, req); err != nil {
				return err
			}
			fmt.Fprintf(a.Out, "provision/%s is retried; to watch it: trivet provision%s %s --watch\n", name,
				a.flagText(), name)
			return nil
		},
	}
	c.Flags().StringVar(&req.Step, "step", "", "action to go on with, on the machine of the last run")
	c.Flags().BoolVar(&req.SameMachine, "same-machine", false, "begin again on the machine of the last run")
	c.Flags().BoolVar(&req.Accept, "accept", false, "accept that machine first: it leaves its quarantine")
	return c
}
