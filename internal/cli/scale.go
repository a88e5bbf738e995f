package cli

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

func (a *app) scale() *cobra.Command {
	var count, maxInFlight int
	var yes bool
	c := &cobra.Command{
		Use:   "scale provision NAME --count N",
		Short: "Change how many machines a provision with a count has",
		Long: "Change how many machines a provision with a count has.\n\n" +
			"Where there are to be more, members are created. Where there are to be fewer, those that wait for a\n" +
			"machine are deleted first, then those that have failed. Those that have a machine stay, unless --yes\n" +
			"is given: then those with the highest numbers are deleted, which releases their machines.",
		Example: "  trivet scale provision web --count 30\n  trivet scale provision web --count 10 --yes\n" +
			"  trivet scale provision web --count 30 --max-in-flight 10",
		Args: cobra.ExactArgs(2), ValidArgsFunction: a.completeScale,
		RunE: func(cmd *cobra.Command, args []string) error {
			info, err := lookupKind(args[0])
			if err != nil {
				return err
			}
			if info.Kind != "Provision" {
				return fmt.Errorf("%w: %s have no count; write: trivet scale provision NAME --count N",
					trivet.ErrInvalid, info.Plural)
			}
			cl, err := a.connect()
			if err != nil {
				return err
			}
			spec := map[string]any{"count": count}
			if cmd.Flags().Changed("max-in-flight") {
				spec["maxInFlight"] = maxInFlight
			}
			return a.scaleTo(cmd.Context(), cl, args[1], spec, yes)
		},
	}
	c.Flags().IntVar(&count, "count", 0, "number of machines")
	c.Flags().IntVar(&maxInFlight, "max-in-flight", 0,
		"members that may wait for a machine or run at the same time; 0: all")
	c.Flags().BoolVar(&yes, "yes", false, "also release machines, where there are more than --count")
	c.MarkFlagRequired("count")
	return c
}

func (a *app) completeScale(cmd *cobra.Command, args []string, _ string) (
	[]cobra.Completion, cobra.ShellCompDirective) {
	switch len(args) {
	case 0:
		return []cobra.Completion{"provision"}, cobra.ShellCompDirectiveNoFileComp
	case 1:
		return a.names(cmd.Context(), "provisions", nil)
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}

// scaleTo patches the spec of a provision. release: members with machines are deleted, where there are too many.
func (a *app) scaleTo(ctx context.Context, cl *client.Client, name string, spec map[string]any, release bool) error {
	provisions := client.Of[trivet.Provision](cl).In(a.project())
	old, err := provisions.Get(ctx, name)
	if err != nil {
		return err
	}
	if old.Spec.Count == nil {
		return &trivet.Error{Op: "scale", Kind: "Provision", Name: name,
			Err:  fmt.Errorf("%w: it is for one machine", trivet.ErrInvalid),
			Hint: fmt.Sprintf("create one with a count: trivet provision%s NAME --count N", a.flagText())}
	}
	patch, err := json.Marshal(map[string]any{"spec": spec})
	if err != nil {
		return err
	}
	now, err := provisions.Patch(ctx, name, patch, 0)
	if err != nil {
		return err
	}
	fmt.Fprintf(a.Out, "provision/%s scaled from %d to %d\n", name, *old.Spec.Count, *now.Spec.Count)
	return a.excess(ctx, cl, now, release)
}

// excess deletes members that have machines, where there are more than the count, or prints that they stay.
func (a *app) excess(ctx context.Context, cl *client.Client, p *trivet.Provision, release bool) error {
	all, err := a.members(ctx, cl, p.Name, "")
	if err != nil {
		return err
	}
	var have []*trivet.Provision
	for _, m := range all {
		if m.Status.State == trivet.ProvisionRunning || m.Status.State == trivet.ProvisionSucceeded {
			have = append(have, m)
		}
	}
	most := *p.Spec.Count
	if len(have) <= most {
		return nil
	}
	if !release {
		text := fmt.Sprintf("%d members have machines and stay", len(have))
		if len(have) == 1 {
			text = "1 member has a machine and stays"
		}
		fmt.Fprintf(a.Out, "%s; to release the last %d: trivet scale%s provision %s --count %d --yes\n", text,
			len(have)-most, a.flagText(), p.Name, most)
		return nil
	}
	var targets []target
	info, err := trivet.LookupKind("Provision")
	if err != nil {
		return err
	}
	for i := len(have) - 1; i >= most; i-- {
		targets = append(targets, target{info, a.project(), have[i].Name})
	}
	return a.deleteAll(ctx, cl, targets, false, true)
}
