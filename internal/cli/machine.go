package cli

import (
	"fmt"

	"github.com/spf13/cobra"
)

func (a *app) accept() *cobra.Command {
	var forget bool
	c := &cobra.Command{
		Use:   "accept MACHINE...",
		Short: "Make machines available, or end their quarantine",
		Long: "Make machines available, or end their quarantine.\n\n" +
			"A discovered machine becomes available: what is on its disks may be overwritten. So does a releasing\n" +
			"one, whose former system may still run: a run that releases it is cancelled. So does an unverified one,\n" +
			"of which a recovery of the cluster does not know what runs on it. A quarantined machine returns to its\n" +
			"former state. Of an available machine whose disks hold data that is kept, the data may be overwritten\n" +
			"from then on.\n\n" +
			"Its reputation stays: provisions prefer machines that failed less often. --forget resets it.",
		Example: "  trivet accept m-525400123456\n" +
			"  trivet accept m1 --forget    # after a repair",
		Args: cobra.MinimumNArgs(1), ValidArgsFunction: a.completeNames("machines"),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := a.connect()
			if err != nil {
				return err
			}
			for _, name := range args {
				if forget { // first, so that it is not placed by what it was
					if err := cl.Forget(cmd.Context(), name); err != nil {
						return err
					}
				}
				if err := cl.Accept(cmd.Context(), name); err != nil {
					return err
				}
				fmt.Fprintf(a.Out, "machine/%s accepted\n", name)
			}
			return nil
		},
	}
	c.Flags().BoolVar(&forget, "forget", false, "reset the machine's reputation: it was repaired")
	return c
}

func (a *app) quarantine() *cobra.Command {
	var reason string
	c := &cobra.Command{
		Use:   "quarantine MACHINE --reason TEXT",
		Short: "Quarantine a machine: cancel its workflow and place no provision on it",
		Long: "Quarantine a machine: cancel its workflow and place no provision on it.\n\n" +
			"An installed system continues and keeps its provision. trivet accept returns the machine to its former\n" +
			"state.",
		Example: "  trivet quarantine m1 --reason 'disk makes noises'",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: a.completeNames("machines"),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := a.connect()
			if err != nil {
				return err
			}
			if err := cl.Quarantine(cmd.Context(), args[0], reason); err != nil {
				return err
			}
			fmt.Fprintf(a.Out, "machine/%s quarantined\n", args[0])
			return nil
		},
	}
	c.Flags().StringVar(&reason, "reason", "", "reason, shown with the machine")
	c.MarkFlagRequired("reason")
	return c
}
