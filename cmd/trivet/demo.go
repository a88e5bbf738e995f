package main

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/cli"
	"github.com/trivet-project/trivet/internal/lab"
	"github.com/trivet-project/trivet/internal/lab/grade"
)

func demoCommand() *cobra.Command {
	d := lab.Demo{Version: version, Out: os.Stdout, Err: os.Stderr}
	var level, kill string
	c := &cobra.Command{
		Use:   "demo",
		Short: "Run heads and simulated machines on this computer",
		Long: "Run a whole site on this computer: heads, and simulated machines that use DHCP and HTTP on\n" +
			"loopback and run a workflow with files as disks. It requires neither root nor additional packages.\n\n" +
			"Scenario faults decides before it starts what is wrong with the site: 15 % of the machines are dead\n" +
			"from a random step on, 5 % fail once, 3 % have a BMC that lies, errs or hangs, one rack has no\n" +
			"network, one platform does not start, and one image in ten templates is damaged. Then it compares\n" +
			"with that which provisions succeeded, on how many machines, which failures were recorded with which\n" +
			"type, and when they could be seen. Each thing that must not be is a violation, and makes the exit\n" +
			"status 1. All deadlines are a twelfth of the usual ones. With --history FILE.jsonl what is wrong is\n" +
			"written to FILE.truth.json.\n\n" +
			"Scenario recovery is a rehearsal of docs/recovery.md and docs/heads.md: heads are lost for good in six\n" +
			"ways, their keys are replaced, and their program is, while machines are being installed and clients\n" +
			"write; all by the commands of this program. For each case, or those of --case, it shows how long it\n" +
			"took until all invariants of trivet status held again, and how many\n" +
			"acknowledged writes and blobs were lost. The exit status is 1 where one was lost that the plan of a\n" +
			"recovery did not give up, or where not all is well afterwards.",
		Example: "  trivet demo --machines 50\n  trivet demo --machines 50 --json --history history.jsonl\n" +
			"  trivet demo --heads 3 --machines 100 --kill random\n" +
			"  trivet demo --scenario faults --heads 3 --machines 200 --history faults.jsonl\n" +
			"  trivet demo --scenario recovery\n  trivet demo --scenario recovery --case quorum-lost,upgraded --json",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if d.Log, err = newLogger(os.Stderr, level, "text"); err != nil {
				return err
			}
			if d.Kill = kill == "random"; !d.Kill && kill != "" {
				return &trivet.FieldError{Field: "--kill", Problem: fmt.Sprintf("is %q; must be random", kill)}
			}
			if d.Scenario == lab.ScenarioRecovery {
				return demoRecovery(cmd, &d)
			}
			s, err := d.Run(cmd.Context())
			if err != nil {
				return err
			}
			if err := report(s, d.JSON); err != nil {
				return err
			}
			if failed(s) {
				return cli.ExitError(1)
			}
			return nil
		},
	}
	f := c.Flags()
	f.IntVar(&d.Machines, "machines", 10, "number of machines")
	f.IntVar(&d.Heads, "heads", 1,
		"number of heads, 1 to 9; more than one run as separate processes; scenario recovery has 3")
	f.StringVar(&kill, "kill", "", "random: kill heads with SIGKILL and restart them while machines install")
	f.StringVar(&d.Scenario, "scenario", lab.ScenarioInstall,
		"install; faults: 23 % of the machines, a rack, a platform and an image are bad; or recovery: heads are lost")
	f.StringSliceVar(&d.Cases, "case", nil,
		"run these cases of scenario recovery only: "+strings.Join(lab.RecoveryCases(), ", "))
	c.RegisterFlagCompletionFunc("case", cobra.FixedCompletions(lab.RecoveryCases(), cobra.ShellCompDirectiveNoFileComp))
	f.Uint64Var(&d.Seed, "seed", 1, "decides what is bad in scenario faults")
	f.DurationVar(&d.Timeout, "timeout", 10*time.Minute, "maximum duration of the demo")
	f.BoolVar(&d.JSON, "json", false,
		"print only one line of JSON at the end; of scenario recovery an array with an object for each case")
	f.StringVar(&d.History, "history", "", "file to which all acknowledged writes and actions are written")
	f.StringVar(&d.Dir, "dir", "", "empty directory for all data, which is kept (default: a temporary directory)")
	f.StringVar(&level, "log-level", slog.LevelError.String(), "log level: debug, info, warn or error")
	return c
}

// failed reports whether the demo showed what must not be. In scenario faults some installs must fail.
func failed(s lab.Summary) bool {
	lost := s.Faults != nil && s.AcknowledgedWritesLost > 0
	if s.Result != nil {
		return lost || s.Result.Failed()
	}
	return lost || s.Failed > 0 || s.Repeated > 0 || s.Faults != nil && s.WorkflowsFailed > 0
}

func report(s lab.Summary, asJSON bool) error {
	if asJSON {
		line, err := json.Marshal(s)
		fmt.Println(string(line))
		return err
	}
	fmt.Printf("\n%d of %d machines installed in %.1f s; %d acknowledged actions ran more than once.\n",
		s.Provisioned, s.Machines, s.Seconds, s.Repeated)
	if r := s.Result; r != nil {
		reportFaults(r)
	}
	if f := s.Faults; f != nil {
		fmt.Printf("%d heads killed, %d of them the leader: %d workflows failed, %d acknowledged writes lost.\n"+
			"Interruption by a kill: writes %d ms (median; maximum %d ms), netboot %d ms (median; maximum %d ms).\n",
			f.HeadsKilled, f.LeadersKilled, f.WorkflowsFailed, f.AcknowledgedWritesLost,
			f.WriteGap.P50, f.WriteGap.Max, f.BootGap.P50, f.BootGap.Max)
	}
	return nil
}

func reportFaults(r *grade.Result) {
	fmt.Printf("%d times a provision went on with another machine. %d machines are in quarantine, %d of them not at "+
		"fault.\n%d failures have the wrong type, %d were seen late, and %d machines were put into quarantine for a "+
		"bad image or platform.\n", r.Switched, r.Quarantined, r.HealthyQuarantined, r.WrongType, r.LateFailures,
		r.SpentOnBadImage)
	t := r.Times
	fmt.Printf("\n%-28s %12s %24s\n", "", "Trivet",
		fmt.Sprintf("one timeout of %s", grade.OneTimeout/time.Duration(t.Pace)))
	row := func(what string, of func(*grade.Outcome) string) {
		fmt.Printf("%-28s %12s %24s\n", what, of(&t.Trivet), of(&t.OneTimeout))
	}
	row("provisions that succeeded", func(o *grade.Outcome) string {
		return fmt.Sprintf("%d of %d", o.Succeeded, o.Provisions)
	})
	row("failure seen, median", func(o *grade.Outcome) string { return fmt.Sprintf("%.1f s", o.FailureSeen.Median) })
	row("failure seen, p99", func(o *grade.Outcome) string { return fmt.Sprintf("%.1f s", o.FailureSeen.P99) })
	row("machine works, median", func(o *grade.Outcome) string { return fmt.Sprintf("%.1f s", o.Working.Median) })
	row("machine works, p99", func(o *grade.Outcome) string { return fmt.Sprintf("%.1f s", o.Working.P99) })
	for _, v := range r.Violations {
		fmt.Println("violation:", v)
	}
}
