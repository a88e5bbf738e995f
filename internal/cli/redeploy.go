package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

// redeployFlags are the flags of trivet redeploy.
type redeployFlags struct {
	reason            string
	yes, dryRun, wait bool
}

func (a *app) redeploy() *cobra.Command {
	var f redeployFlags
	c := &cobra.Command{
		Use:   "redeploy PROVISION|MACHINE...",
		Short: "Install machines in service again, with the same configuration",
		Long: "Install machines in service again, with the same configuration: each keeps its provision, its name and its\n" +
			"address, and what is on its disks is overwritten as its template says. The template and its images are\n" +
			"used as they are now; what differs from what was installed is shown before. To install something else,\n" +
			"change the template (trivet apply) or the image (trivet image import --replace) first.\n\n" +
			"The machine is power-cycled into the installer by its BMC. Without a BMC it goes on until it boots from\n" +
			"the network. Nothing serves the provision until the run has succeeded. A run that fails has the\n" +
			"consequences that it has at first: by the machine's fault, the machine is quarantined, and a provision\n" +
			"with a selector goes on with another one.\n\n" +
			"It is refused where no machine in service has the provision (see trivet retry for one that has failed),\n" +
			"where the machine is cordoned or in quarantine, where the template or an image has gone, and where what\n" +
			"would be installed has changed since it was shown. Members of a provision with a count are named each.\n" +
			"NAME is looked up as a provision and as a machine; write machine/NAME or provision/NAME where both exist.",
		Example: "  trivet redeploy web1 --dry-run\n  trivet redeploy web1 --reason 'new image'\n" +
			"  trivet redeploy web-1 web-2 --yes --wait\n  trivet redeploy machine/m17 --yes -o json",
		Args: cobra.MinimumNArgs(1), ValidArgsFunction: a.completeNames("provisions"),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := a.connect()
			if err != nil {
				return err
			}
			plans, err := a.planRedeploys(cmd.Context(), cl, args)
			if err != nil {
				return err
			}
			return a.redeployAll(cmd.Context(), cl, plans, &f)
		},
	}
	c.Flags().StringVar(&f.reason, "reason", "", "why, for other people: it is in the events")
	c.Flags().BoolVar(&f.dryRun, "dry-run", false, "show what would be done and what differs, and do nothing")
	c.Flags().BoolVar(&f.yes, "yes", false, "do not ask")
	c.Flags().BoolVar(&f.wait, "wait", false, "wait until the provisions have ended; exit status 1 if one failed")
	c.MarkFlagsMutuallyExclusive("dry-run", "yes")
	c.MarkFlagsMutuallyExclusive("dry-run", "wait")
	a.outputForms(c, "table", "json", "yaml")
	return c
}

// redeployView is a redeploy that has begun.
type redeployView struct {
	Project   string                `json:"project"`
	Provision string                `json:"provision"`
	Machine   string                `json:"machine"`
	Workflow  string                `json:"workflow,omitempty"` // the run
	State     trivet.ProvisionState `json:"state,omitempty"`
	Error     string                `json:"error,omitempty"`
}

// redeployAll asks once about all machines, requests each redeploy, and waits for them where that is wanted.
func (a *app) redeployAll(ctx context.Context, cl *client.Client, plans []redeployPlan, f *redeployFlags) error {
	if f.dryRun {
		return a.showPlans(plans)
	}
	if !f.yes {
		if err := a.confirm(ctx, "redeploy", planTexts(plans)); err != nil {
			return err
		}
	}
	views, failed := make([]redeployView, len(plans)), false
	for i, p := range plans {
		v := &views[i]
		*v = redeployView{Project: p.Project, Provision: p.Provision, Machine: p.Machine}
		err := cl.Redeploy(ctx, p.Project, p.Provision, trivet.RedeployRequest{Reason: f.reason, Plan: p.Plan})
		if err == nil {
			err = v.wait(ctx, cl, p.Run, func(trivet.ProvisionState) bool { return true })
		}
		a.reportRedeploy(v, err, &failed, fmt.Sprintf("is installed again on machine %s by workflow %s", v.Machine,
			v.Workflow))
	}
	for i := range views {
		if v := &views[i]; f.wait && v.Error == "" {
			err := v.wait(ctx, cl, plans[i].Run, trivet.ProvisionState.Ended)
			if err != nil && ctx.Err() != nil {
				return a.interrupted(ctx, err, "the redeploy goes on; to see it: trivet why %s", v.Machine)
			}
			if err == nil && v.State == trivet.ProvisionFailed {
				err = v.failure()
			}
			a.reportRedeploy(v, err, &failed, fmt.Sprintf("is %s on machine %s", v.State, v.Machine))
		}
	}
	if a.output != "table" {
		if err := a.showValue(views); err != nil {
			return err
		}
	}
	if failed {
		return ExitError(1)
	}
	return nil
}

// reportRedeploy prints what became of a provision, and records an error.
func (a *app) reportRedeploy(v *redeployView, err error, failed *bool, text string) {
	switch {
	case err != nil:
		v.Error, *failed = cmp.Or(hintOf(err), err.Error()), true
		PrintError(a.Err, err)
	case a.output == "table":
		fmt.Fprintf(a.Out, "provision/%s %s\n", v.Provision, text)
	}
}

// wait waits until the provision has another run than the former one, and a state.
func (v *redeployView) wait(ctx context.Context, cl *client.Client, former string,
	is func(trivet.ProvisionState) bool) error {
	provisions := newFeed(ctx, cl, "Provision", v.Project, v.Provision)
	defer provisions.close()
	for e := range provisions.events {
		p, ok := e.Record.(*trivet.Provision)
		switch {
		case e.Type == client.Delete:
			return fmt.Errorf("provision %s: %w: it was deleted", v.Provision, trivet.ErrNotFound)
		case e.Type != client.Put || !ok || p.Status.Workflow == former || !is(p.Status.State):
			continue
		}
		v.Machine, v.Workflow, v.State = p.Status.Machine, p.Status.Workflow, p.Status.State
		return nil
	}
	return errors.Join(provisions.err, context.Cause(ctx))
}

// failure returns why the provision failed.
func (v *redeployView) failure() error {
	return &trivet.Error{Op: "redeploy", Kind: "Provision", Name: v.Provision,
		Err: fmt.Errorf("it failed in run %s", v.Workflow), Hint: "see: trivet why " + v.Machine}
}
