package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/trivet-project/trivet/internal/agent/installer/osinit"
)

// agentCommand is the agent outside of the installer OS, with the same arguments as the kernel's command line.
func agentCommand() *cobra.Command {
	var args struct{ url, ca, token, machine, mac, journal, bootID string }
	c := &cobra.Command{
		Use:   "agent",
		Short: "Run the agent in this machine",
		Long: "Run the agent in this machine, as the installer OS does: it proves itself with a boot token,\n" +
			"reports what is in the machine and runs its workflow. The installer OS starts it automatically.",
		Example: "  trivet agent --url https://10.0.0.5:7480 --ca sha256:... --token tb1~... \\\n" +
			"    --machine m1 --mac 52:54:00:12:34:56",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			env := osinit.Env{BootID: args.bootID, MAC: args.mac, Cmdline: osinit.Cmdline{
				"trivet.url": args.url, "trivet.ca": args.ca, "trivet.token": args.token,
				"trivet.machine": args.machine,
				"trivet.journal": args.journal,
			}}
			after, err := runInstaller(cmd.Context(), env)
			if err == nil {
				fmt.Fprintln(cmd.OutOrStdout(), "the machine should now", after)
			}
			return err
		},
	}
	f := c.Flags()
	f.StringVar(&args.url, "url", "", "API URLs of the heads, with commas between")
	f.StringVar(&args.ca, "ca", "", "pin of the cluster's CA")
	f.StringVar(&args.token, "token", "", "boot token, from the machine's boot script")
	f.StringVar(&args.machine, "machine", "", "the machine's name; empty: to be enrolled")
	f.StringVar(&args.mac, "mac", "", "MAC of the port that the token is for")
	f.StringVar(&args.journal, "journal", "", "device or file for the journal; empty: memory")
	f.StringVar(&args.bootID, "boot-id", "by-hand", "names this boot of the machine")
	for _, name := range []string{"url", "ca", "token", "mac"} {
		_ = c.MarkFlagRequired(name)
	}
	return c
}
