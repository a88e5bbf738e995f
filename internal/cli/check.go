package cli

import "github.com/spf13/cobra"

func (a *app) check() *cobra.Command {
	f := releaseFlags{check: true, yes: true} // nothing is in use, and nothing is lost
	c := &cobra.Command{
		Use:   "check MACHINE...",
		Short: "Test the hardware of machines; one in quarantine leaves it where nothing is found",
		Long: "Test the hardware of machines. One in quarantine leaves it where nothing is found and is available.\n\n" +
			"The machine is power-cycled into the installer by its BMC. Half of its free memory is written and read\n" +
			"with six patterns. Of each disk 64 samples are read twice, written back as they were, and read again. With\n" +
			"--full that is every byte of each disk: hours for large ones. What is on the disks stays, unless the hardware\n" +
			"fails during the test. Of the network, the links and 64 MiB from a head are tested. Then the machine is\n" +
			"powered off. Without a BMC, boot it from the network by hand: trivet why says when.\n\n" +
			"Where something is found, or the machine is reset while it is tested, it stays in quarantine, and an\n" +
			"available one is quarantined, with the log and the console of the test: trivet why. Where the check cannot\n" +
			"be made, by no fault of the machine, it is left as it was. A machine that is in use is not checked: trivet\n" +
			"release comes first. Its reputation stays: trivet accept --forget resets it. To cancel a check: trivet\n" +
			"quarantine.",
		Example: "  trivet check m1 --wait\n  trivet check m1 m2 --full\n  trivet check m1 --wait -o json",
		Args:    cobra.MinimumNArgs(1), ValidArgsFunction: a.completeNames("machines"),
		RunE: a.runRelease(&f),
	}
	c.Flags().BoolVar(&f.all, "full", false, "read, write and read again every byte of each disk")
	c.Flags().BoolVar(&f.wait, "wait", false, "wait until the checks have ended; exit status 1 if one failed")
	a.outputForms(c, "table", "json", "yaml")
	return c
}
