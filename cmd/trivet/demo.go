package main

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/cli"
	"github.com/trivet-project/trivet/internal/lab"
)

func demoCommand() *cobra.Command {
	d := lab.Demo{Version: version, Out: os.Stdout, Err: os.Stderr}
	var level, kill string
	c := &cobra.Command{
		Use:   "demo",
		Short: "Run heads and simulated machines on this computer",
		Long: "Run a whole site on this computer: heads, and simulated machines that use DHCP and HTTP on\n" +
			"loopback and run a workflow with files as disks. It requires neither root nor additional packages.",
		Example: "  trivet demo --machines 50\n  trivet demo --machines 50 --json --history history.jsonl\n" +
			"  trivet demo --heads 3 --machines 100 --kill random",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if d.Log, err = newLogger(os.Stderr, level, "text"); err != nil {
				return err
			}
			if d.Kill = kill == "random"; !d.Kill && kill != "" {
				return &trivet.FieldError{Field: "--kill", Problem: fmt.Sprintf("is %q; must be random", kill)}
			}
			s, err := d.Run(cmd.Context())
			if err != nil {
				return err
			}
			if err := report(s, d.JSON); err != nil {
				return err
			}
			if s.Failed > 0 || s.Repeated > 0 || s.Faults != nil && s.AcknowledgedWritesLost+s.WorkflowsFailed > 0 {
				return cli.ExitError(1)
			}
			return nil
		},
	}
	f := c.Flags()
	f.IntVar(&d.Machines, "machines", 10, "number of machines")
	f.IntVar(&d.Heads, "heads", 1, "number of heads, 1 to 9; more than one run as separate processes")
	f.StringVar(&kill, "kill", "", "random: kill heads with SIGKILL and restart them while machines install")
	f.DurationVar(&d.Timeout, "timeout", 10*time.Minute, "maximum duration of the demo")
	f.BoolVar(&d.JSON, "json", false, "print only one line of JSON at the end")
	f.StringVar(&d.History, "history", "", "file to which all acknowledged writes and actions are written")
	f.StringVar(&d.Dir, "dir", "", "empty directory for all data, which is kept (default: a temporary directory)")
	f.StringVar(&level, "log-level", slog.LevelError.String(), "log level: debug, info, warn or error")
	return c
}

func report(s lab.Summary, asJSON bool) error {
	if asJSON {
		line, err := json.Marshal(s)
		fmt.Println(string(line))
		return err
	}
	fmt.Printf("\n%d of %d machines installed in %.1f s; %d acknowledged actions ran more than once.\n",
		s.Provisioned, s.Machines, s.Seconds, s.Repeated)
	if f := s.Faults; f != nil {
		fmt.Printf("%d heads killed, %d of them the leader: %d workflows failed, %d acknowledged writes lost.\n"+
			"Interruption by a kill: writes %d ms (median; maximum %d ms), netboot %d ms (median; maximum %d ms).\n",
			f.HeadsKilled, f.LeadersKilled, f.WorkflowsFailed, f.AcknowledgedWritesLost,
			f.WriteGap.P50, f.WriteGap.Max, f.BootGap.P50, f.BootGap.Max)
	}
	return nil
}
