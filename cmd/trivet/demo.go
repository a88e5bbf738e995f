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
		Short: "Show a head and simulated machines on this computer",
		Long: "Show a whole site on this computer: a real head, and simulated machines that speak real DHCP and HTTP to it on\n" +
			"loopback and run a real workflow on files as disks. It needs no root and no packages.",
		Example: "  trivet demo --machines 50\n  trivet demo --machines 50 --json --history history.jsonl\n" +
			"  trivet demo --heads 3 --machines 100 --kill random",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if d.Log, err = newLogger(level, "text"); err != nil {
				return err
			}
			if d.Kill = kill == "random"; !d.Kill && kill != "" {
				return &trivet.FieldError{Field: "--kill", Problem: fmt.Sprintf("is %q; it can be random", kill)}
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
	f.IntVar(&d.Machines, "machines", 10, "how many machines")
	f.IntVar(&d.Heads, "heads", 1, "how many heads, 1 to 9; several are processes of their own")
	f.StringVar(&kill, "kill", "", "random: kill heads by kill -9, again and again, while machines install")
	f.DurationVar(&d.Timeout, "timeout", 10*time.Minute, "give up after this long")
	f.BoolVar(&d.JSON, "json", false, "print one line of JSON at the end, nothing else")
	f.StringVar(&d.History, "history", "", "write every acknowledged write and action to this file")
	f.StringVar(&d.Dir, "dir", "", "keep everything in this folder, which has no earlier demo (default: a temporary one)")
	f.StringVar(&level, "log-level", slog.LevelError.String(), "debug, info, warn or error")
	return c
}

func report(s lab.Summary, asJSON bool) error {
	if asJSON {
		line, err := json.Marshal(s)
		fmt.Println(string(line))
		return err
	}
	fmt.Printf("\n%d of %d machines were installed and phoned home, in %.1f s; %d acknowledged actions ran twice.\n",
		s.Provisioned, s.Machines, s.Seconds, s.Repeated)
	if f := s.Faults; f != nil {
		fmt.Printf("%d heads were killed meanwhile, %d of them the leader: %d runs failed, %d acknowledged writes were lost.\n"+
			"Around a kill, a program that writes waited %d ms (median; at most %d), a machine that boots %d ms (at most %d).\n",
			f.HeadsKilled, f.LeadersKilled, f.WorkflowsFailed, f.AcknowledgedWritesLost, f.WriteGap.P50, f.WriteGap.Max, f.BootGap.P50, f.BootGap.Max)
	}
	return nil
}
