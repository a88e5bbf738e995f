package cli

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/spf13/cobra"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

// decision is what is decided about provisions after a recovery.
type decision struct {
	what    string // as in the request
	machine string // the one that has it installed; empty: the one that its record has
	address string // of that machine; empty: the one that is recorded
}

func (a *app) recoverResolve() *cobra.Command {
	var goOn, cancel, installed bool
	var d decision
	c := &cobra.Command{
		Use:   "resolve PROVISION... {--continue | --cancel | --installed}",
		Short: "Decide about provisions after a recovery",
		Long: "Decide about provisions after a recovery of the cluster, which has frozen those that had not ended.\n\n" +
			"  --continue   The provision waits or runs again. Its machine goes on after the last action that was\n" +
			"               recorded: if its agent is not idle, its BMC power-cycles it, and it boots the\n" +
			"               installer. What was installed on it since is overwritten.\n" +
			"  --cancel     The provision fails. Its machine is left as it is, unverified.\n" +
			"  --installed  The machine runs what the provision wanted, since before the recovery. It serves the\n" +
			"               provision from now on, and is not touched. The provision may also wait for a machine, or\n" +
			"               have failed: one that is lost is applied again before. One in quarantine stays in it\n" +
			"               until trivet accept. --machine names the machine where the record of the provision does not\n" +
			"               have it, and --address the address of its boot port where that is lost: without, another\n" +
			"               machine may get that.",
		Example: "  trivet recover resolve web1 --continue\n  trivet recover resolve web1 web2 --cancel\n" +
			"  trivet recover resolve web1 --installed\n" +
			"  trivet recover resolve web1 --installed --machine r1-u12 --address 10.0.0.15",
		Args: cobra.MinimumNArgs(1), ValidArgsFunction: a.completeNames("provisions"),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch d.what = trivet.ResolveCancel; {
			case goOn:
				d.what = trivet.ResolveContinue
			case installed:
				d.what = trivet.ResolveInstalled
			}
			if err := d.check(args); err != nil {
				return err
			}
			cl, err := a.connect()
			if err != nil {
				return err
			}
			return a.resolveAll(cmd.Context(), cl, args, d)
		},
	}
	f := c.Flags()
	f.BoolVar(&goOn, "continue", false, "let them go on")
	f.BoolVar(&cancel, "cancel", false, "end them")
	f.BoolVar(&installed, "installed", false, "a machine runs what they wanted: it serves them as it is")
	f.StringVar(&d.machine, "machine", "", "with --installed: the machine that runs it")
	f.StringVar(&d.address, "address", "", "with --installed: the address of the machine's boot port")
	c.MarkFlagsOneRequired("continue", "cancel", "installed")
	c.MarkFlagsMutuallyExclusive("continue", "cancel", "installed")
	_ = c.RegisterFlagCompletionFunc("machine", a.completeNames("machines"))
	return c
}

// check refuses flags that do not fit what is decided.
func (d *decision) check(names []string) error {
	given := d.machine != "" || d.address != ""
	switch {
	case given && d.what != trivet.ResolveInstalled:
		return fmt.Errorf("--machine and --address need --installed")
	case given && len(names) > 1:
		return fmt.Errorf("--machine and --address need one provision; %d are given", len(names))
	}
	if _, err := d.addr(); err != nil {
		return fmt.Errorf("--address %s is not an address, such as 10.0.0.15", d.address)
	}
	return nil
}

func (d *decision) addr() (netip.Addr, error) {
	if d.address == "" {
		return netip.Addr{}, nil
	}
	return netip.ParseAddr(d.address)
}

func (a *app) resolveAll(ctx context.Context, cl *client.Client, names []string, d decision) error {
	failed := false
	for _, name := range names {
		text, err := a.resolveOne(ctx, cl, name, d)
		if err != nil {
			failed = true
			PrintError(a.Err, err)
			continue
		}
		fmt.Fprintf(a.Out, "provision/%s: %s\n", name, text)
	}
	if failed {
		return ExitError(1)
	}
	return nil
}

// resolveOne decides about one provision, and says what was decided.
func (a *app) resolveOne(ctx context.Context, cl *client.Client, name string, d decision) (string, error) {
	project, provision := trivet.SplitName(trivet.Resolve(a.project(), name))
	switch d.what {
	case trivet.ResolveContinue:
		return "continued", cl.Resolve(ctx, project, provision, d.what)
	case trivet.ResolveCancel:
		return "cancelled", cl.Resolve(ctx, project, provision, d.what)
	}
	address, err := d.addr()
	if err != nil {
		return "", err
	}
	if err := cl.ResolveInstalled(ctx, project, provision, d.machine, address); err != nil {
		return "", err
	}
	return installedText(ctx, cl, project, provision)
}

// installedText says which machine serves a provision by now, and what is left to do.
func installedText(ctx context.Context, cl *client.Client, project, provision string) (string, error) {
	p, err := client.Of[trivet.Provision](cl).In(project).Get(ctx, provision)
	if err != nil {
		return "", err
	}
	m, err := client.Of[trivet.Machine](cl).Get(ctx, p.Status.Machine)
	if err != nil {
		return "", err
	}
	text := "installed: machine " + m.Name + " serves it, and was not touched"
	if p.Status.Address == "" {
		text += "; its address is not known, and another machine may get it: --address, or a fixed one in spec.nics"
	}
	if m.Status.State == trivet.MachineQuarantined {
		text += "; it stays in quarantine until: trivet accept " + m.Name
	}
	return text, nil
}
