package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

func (a *app) power() *cobra.Command {
	c := &cobra.Command{
		Use: "power", Short: "Power machines on and off by their BMCs, and show their power",
		Example: "  trivet power status m1 m2\n  trivet power off m1\n  trivet power cycle m1 --no-wait",
	}
	c.AddCommand(
		a.setPower(trivet.PowerOn, "Power machines on",
			"A machine that is not installed boots from the network, an installed one from its disk."),
		a.setPower(trivet.PowerOff, "Power machines off; what runs on them is not shut down",
			"The power is cut: what runs on the machine is not shut down."),
		a.setPower(trivet.PowerCycle, "Power machines off and then on",
			"The power is cut, and switched on when the BMC reports the machine off. An installed machine then boots\n"+
				"from its disk, another one from the network."),
		a.powerStatus())
	return c
}

// powerWait bounds the wait for one machine: heads drop a request after 90 seconds, and may begin late.
const powerWait = 3 * time.Minute

func (a *app) setPower(want, short, long string) *cobra.Command {
	req := trivet.PowerRequest{Want: want}
	var noWait, yes bool
	var timeout time.Duration
	c := &cobra.Command{
		Use: want + " MACHINE...", Short: short,
		Long: short + ".\n\n" + long + "\n\n" +
			"The request is written to the machine's record, and a head carries it out. The command waits for the\n" +
			"BMC; if it is interrupted, the heads continue. A machine that is at work in a run is refused unless\n" +
			"--force is given: the run then goes on as after a loss of power, and may power the machine on again.\n\n" +
			"Before the power of a machine is cut that is in use, the command asks; --yes is for programs.",
		Example: fmt.Sprintf("  trivet power %s m1\n  trivet power %s m1 m2 --no-wait", want, want),
		Args:    cobra.MinimumNArgs(1), ValidArgsFunction: a.completeNames("machines"),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := a.connect()
			if err != nil {
				return err
			}
			if want != trivet.PowerOn && !yes {
				if err := a.confirmPower(cmd.Context(), cl, args, want); err != nil {
					return err
				}
			}
			return a.powerAll(cmd.Context(), cl, args, req, noWait, timeout)
		},
	}
	c.Flags().BoolVar(&req.Force, "force", false, "also while a machine is at work in a run")
	c.Flags().BoolVar(&noWait, "no-wait", false, "request it and exit")
	c.Flags().DurationVar(&timeout, "timeout", powerWait, "how long to wait for each machine")
	if want != trivet.PowerOn {
		yesFlag(c, &yes)
	}
	return c
}

// confirmPower asks before the power of machines is cut that are in use.
func (a *app) confirmPower(ctx context.Context, cl *client.Client, machines []string, want string) error {
	var text strings.Builder
	for _, name := range machines {
		m, err := client.Of[trivet.Machine](cl).Get(ctx, name)
		if errors.Is(err, trivet.ErrNotFound) {
			continue // the request says so
		}
		if err != nil {
			return err
		}
		if m.Status.Provision != "" || m.Status.State == trivet.MachineActive {
			fmt.Fprintf(&text, "machine/%s is %s%s. Its power is cut: what runs on it is not shut down.\n", name,
				m.Status.State, servesText(m))
		}
	}
	if text.Len() == 0 {
		return nil
	}
	return a.confirm(ctx, "power "+want, text.String())
}

func servesText(m *trivet.Machine) string {
	if m.Status.Provision == "" {
		return ""
	}
	return " and serves provision " + m.Status.Provision
}

// powerAll requests the state for all machines, and then waits for each. It fails if any of them did.
func (a *app) powerAll(ctx context.Context, cl *client.Client, machines []string, req trivet.PowerRequest, noWait bool,
	timeout time.Duration) error {
	failed := false
	var requested []string
	for _, name := range machines {
		if err := cl.RequestPower(ctx, name, req); err != nil {
			failed = true
			PrintError(a.Err, err)
			continue
		}
		requested = append(requested, name)
		if noWait {
			fmt.Fprintf(a.Out, "machine/%s power %s requested\n", name, req.Want)
		}
	}
	for _, name := range requested {
		if noWait {
			break
		}
		power, err := waitPower(ctx, cl, name, timeout)
		if err != nil && ctx.Err() != nil {
			return a.interrupted(ctx, err, "the heads continue; to check it: trivet power status %s", name)
		}
		if err != nil {
			failed = true
			PrintError(a.Err, err)
			continue
		}
		fmt.Fprintln(a.Out, powerText(name, req.Want, power))
	}
	if failed {
		return ExitError(1)
	}
	return nil
}

// waitPower waits until a machine's request was carried out or dropped, and returns the power that its BMC reported.
func waitPower(ctx context.Context, cl *client.Client, name string, timeout time.Duration) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	failed := &trivet.Error{Op: "power", Kind: "Machine", Name: name}
	for e, err := range client.Of[trivet.Machine](cl).Watch(ctx, client.WatchOptions{Names: []string{name}}) {
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			return "", err
		}
		m, ok := e.Record.(*trivet.Machine)
		switch {
		case e.Type == client.Delete:
			failed.Err = fmt.Errorf("%w: the machine was deleted", trivet.ErrNotFound)
			return "", failed
		case e.Type != client.Put || !ok || m.Status.Intent != nil:
			continue
		}
		return m.Status.Power, powerOutcome(ctx, cl, m)
	}
	failed.Err = fmt.Errorf("%w: the BMC has not done it within %s; the heads go on trying for %s at most",
		trivet.ErrUnknown, timeout, powerWait/2)
	failed.Hint = "trivet why " + name
	return "", failed
}

// powerText is the outcome of a request that did not fail: an agent that comes up ends one before its BMC has answered.
func powerText(name, want, power string) string {
	if power == want || power == trivet.PowerOn && want == trivet.PowerCycle {
		return fmt.Sprintf("machine/%s is %s", name, power)
	}
	return fmt.Sprintf("machine/%s: the request for power %s ended; its BMC last reported %s", name, want,
		cmp.Or(power, "nothing"))
}

// powerOutcome returns the failure of the last request for a machine's power, by its events.
func powerOutcome(ctx context.Context, cl *client.Client, m *trivet.Machine) error {
	events, err := eventsOf(ctx, cl, "machine/"+m.Name, m.UID)
	if err != nil {
		return err
	}
	for i := len(events) - 1; i >= 0; i-- {
		switch e := events[i].Spec; e.Reason {
		case trivet.ReasonPowerFailed, trivet.ReasonPowerExpired:
			return &trivet.Error{Op: "power", Kind: "Machine", Name: m.Name, Err: errors.New(e.Message)}
		case trivet.ReasonPowerRequested:
			return nil
		}
	}
	return nil
}

func (a *app) powerStatus() *cobra.Command {
	c := &cobra.Command{
		Use: "status MACHINE...", Short: "Ask the BMCs of machines for their power",
		Long: "Ask the BMCs of machines for their power, for 10 seconds at most. Where a BMC does not answer, the\n" +
			"state that was recorded last is shown with the error, and the exit status is 1.\n\n" +
			"The heads ask each BMC about every 10 minutes by themselves: status.power of a machine, and with\n" +
			"status.powerError why it is not known (trivet get machines -o wide). This command updates both.",
		Example: "  trivet power status m1\n  trivet power status m1 m2 -o json",
		Args:    cobra.MinimumNArgs(1), ValidArgsFunction: a.completeNames("machines"),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := a.connect()
			if err != nil {
				return err
			}
			return a.showPower(cmd.Context(), cl, args)
		},
	}
	a.outputForms(c, "table", "json", "yaml")
	return c
}

// powerView is what is known of a machine's power.
type powerView struct {
	Machine string              `json:"machine"`
	Power   string              `json:"power"`  // "on", "off", "changing" or "unknown"
	Source  string              `json:"source"` // "bmc", or "record": the last known state
	Intent  *trivet.PowerIntent `json:"intent,omitempty"`
	Error   string              `json:"error,omitempty"` // why the BMC was not read
}

func (a *app) showPower(ctx context.Context, cl *client.Client, machines []string) error {
	views := make([]powerView, len(machines))
	errs := inParallel(len(machines), func(i int) (err error) {
		views[i], err = powerOf(ctx, cl, machines[i])
		return err
	})
	if err := errors.Join(errs...); err != nil {
		return err
	}
	rows := [][]string{{"MACHINE", "POWER", "SOURCE", "REQUESTED", "ERROR"}}
	failed := false
	for _, v := range views {
		want := ""
		if v.Intent != nil {
			want = v.Intent.Want
		}
		failed = failed || v.Error != ""
		rows = append(rows, []string{v.Machine, printable(v.Power), v.Source, want, printable(v.Error)})
	}
	var err error
	if a.output == "table" {
		err = align(a.Out, rows)
	} else {
		err = a.showValue(views)
	}
	if err == nil && failed {
		err = ExitError(1)
	}
	return err
}

// powerOf reads the power of a machine: from its BMC, or what was recorded last.
func powerOf(ctx context.Context, cl *client.Client, name string) (v powerView, err error) {
	m, err := client.Of[trivet.Machine](cl).Get(ctx, name)
	if err != nil {
		return v, err
	}
	v = powerView{Machine: name, Source: "bmc", Intent: m.Status.Intent}
	state, err := cl.Power(ctx, name)
	if err == nil {
		v.Power = state.Power
		return v, nil
	}
	if errors.Is(err, trivet.ErrForbidden) {
		return v, err
	}
	v.Power, v.Source, v.Error = cmp.Or(m.Status.Power, "unknown"), "record", cmp.Or(hintOf(err), err.Error())
	return v, nil
}
