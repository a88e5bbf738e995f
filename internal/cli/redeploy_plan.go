package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

// redeployPlan is a plan and the machine that it is for.
type redeployPlan struct {
	*trivet.RedeployPlan
	machine *trivet.Machine
}

// planRedeploys returns what would be done, each provision once. It fails where one cannot be redeployed.
func (a *app) planRedeploys(ctx context.Context, cl *client.Client, names []string) (all []redeployPlan, err error) {
	for _, arg := range names {
		project, name, err := a.servedBy(ctx, cl, arg)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(all, func(p redeployPlan) bool { return p.Project == project && p.Provision == name }) {
			continue
		}
		plan, err := cl.PlanRedeploy(ctx, project, name)
		if err != nil {
			return nil, err
		}
		m, err := client.Of[trivet.Machine](cl).Get(ctx, plan.Machine)
		if err != nil {
			return nil, err
		}
		all = append(all, redeployPlan{plan, m})
	}
	return all, nil
}

// servedBy returns the provision of a name, or the one that a machine of the name serves.
func (a *app) servedBy(ctx context.Context, cl *client.Client, arg string) (project, name string, err error) {
	kind, name, given := strings.Cut(arg, "/")
	switch {
	case !given:
		kind, name = "", arg
	case kind == "provision":
		return a.project(), name, nil
	case kind != "machine":
		return "", "", fmt.Errorf("%w: %q: write machine/NAME or provision/NAME", trivet.ErrInvalid, arg)
	}
	m, err := client.Of[trivet.Machine](cl).Get(ctx, name)
	if kind == "" {
		p, missing := client.Of[trivet.Provision](cl).In(a.project()).Get(ctx, name)
		switch {
		case missing == nil && err == nil && p.Status.Machine != m.Name:
			return "", "", fmt.Errorf("%w: %s is a machine and a provision; write machine/%[2]s or provision/%[2]s",
				trivet.ErrInvalid, name)
		case !errors.Is(missing, trivet.ErrNotFound):
			return a.project(), name, missing
		}
	}
	switch {
	case kind == "" && errors.Is(err, trivet.ErrNotFound):
		return "", "", fmt.Errorf("redeploy %s: %w: there is no provision and no machine of that name", name,
			trivet.ErrNotFound)
	case err != nil:
		return "", "", err
	case m.Status.Provision == "":
		return "", "", &trivet.Error{Op: "redeploy", Kind: "Machine", Name: name,
			Err:  fmt.Errorf("%w: it serves no provision", trivet.ErrConflict),
			Hint: "create one: trivet provision NAME --template TEMPLATE --machine " + name}
	}
	project, name = trivet.SplitName(trivet.Resolve("", m.Status.Provision))
	return project, name, nil
}

// showPlans prints what would be done.
func (a *app) showPlans(plans []redeployPlan) error {
	if a.output == "table" {
		_, err := fmt.Fprint(a.Out, planTexts(plans)+"Nothing was changed.\n")
		return err
	}
	var all []*trivet.RedeployPlan
	for _, p := range plans {
		all = append(all, p.RedeployPlan)
	}
	return a.showValue(all)
}

func planTexts(plans []redeployPlan) string {
	var b strings.Builder
	for _, p := range plans {
		b.WriteString(p.text())
	}
	return b.String()
}

// text says what becomes of the machine and its disks, and what differs from what is installed.
func (p redeployPlan) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "provision/%s: machine %s is INSTALLED AGAIN, from template %s as it is now.\n", p.Provision,
		p.Machine, p.Template)
	if p.machine.Spec.BMC == nil {
		b.WriteString("  It has no BMC: it goes on until you boot it from the network by hand.\n")
	} else {
		b.WriteString("  What runs on it is stopped: its BMC power-cycles it. Nothing serves the provision until that is " +
			"done.\n")
	}
	b.WriteString("  ALL DATA that the actions of its template overwrite is destroyed. Its disks:\n")
	writeDisks(&b, p.machine.Status.Inventory)
	p.writeChanges(&b)
	return b.String()
}

func (p redeployPlan) writeChanges(b *strings.Builder) {
	switch {
	case p.Installed.IsZero():
		fmt.Fprintf(b, "  What run %s has installed on it is not known any more.\n", p.Run)
		return
	case len(p.Changes) == 0:
		fmt.Fprintf(b, "  Nothing differs from run %s, which has installed it.\n", p.Run)
		return
	}
	fmt.Fprintf(b, "  What differs from run %s, which has installed it:\n", p.Run)
	for _, c := range p.Changes {
		was, now := cmp.Or(printable(c.Was), "not set"), cmp.Or(printable(c.Now), "not set")
		if was == now {
			was, now = "hidden", "another value"
		}
		fmt.Fprintf(b, "    %s: %s -> %s\n", printable(c.Field), was, now)
	}
}
