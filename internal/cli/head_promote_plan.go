package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/invariant"
)

// promotePlan is what trivet head promote would do.
type promotePlan struct {
	*trivet.Rendered
	machine  *trivet.Machine
	serves   *trivet.Provision // what the machine serves now; nil: nothing, or nothing that exists
	platform string            // the version of what is installed
	Join     *invariant.Join
}

// planPromotion renders the run that would install the machine. It fails where that could not be.
func (a *app) planPromotion(ctx context.Context, cl *client.Client, m *trivet.Machine, p *trivet.Provision) (
	*promotePlan, error) {
	rendered, err := cl.Render(ctx, a.project(), trivet.RenderRequest{Provision: *p})
	if err != nil {
		return nil, err
	}
	status, err := cl.Status(ctx)
	if err != nil {
		return nil, err
	}
	plan := &promotePlan{Rendered: rendered, machine: m, Join: invariant.Adding(&status.Facts, p.Spec.Head.RoleOf())}
	if m.Status.Provision != "" {
		project, name := trivet.SplitName(trivet.Resolve("", m.Status.Provision))
		plan.serves, err = client.Of[trivet.Provision](cl).In(project).Get(ctx, name)
		if err != nil && !errors.Is(err, trivet.ErrNotFound) {
			return nil, err
		}
	}
	plan.platform, err = platformVersion(ctx, cl, m)
	return plan, err
}

// platformVersion returns the version of the platform that a machine netboots: its program becomes that of the head.
func platformVersion(ctx context.Context, cl *client.Client, m *trivet.Machine) (string, error) {
	site, err := client.Of[trivet.Site](cl).Get(ctx, trivet.SiteName)
	if err != nil && !errors.Is(err, trivet.ErrNotFound) {
		return "", err
	}
	name := m.Spec.Platform
	if name == "" && site != nil {
		name = site.Spec.Platform
	}
	if name == "" {
		return "", nil
	}
	p, err := client.Of[trivet.Platform](cl).Get(ctx, name)
	if errors.Is(err, trivet.ErrNotFound) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return p.Spec.Version, nil
}

// text is the plan for people.
func (p *promotePlan) text() string {
	var b strings.Builder
	m, run := p.machine, &p.Workflow.Spec
	fmt.Fprintf(&b, "machine/%s is INSTALLED as a head, a %s at %s, from template %s.\n", m.Name, p.Join.Role, p.Address,
		run.Template)
	switch {
	case p.serves != nil:
		fmt.Fprintf(&b, "  Lost:    provision %s, which it serves since %s, is deleted\n", m.Status.Provision,
			m.Status.Activated.UTC().Format("2006-01-02"))
	case m.Status.Provision != "":
		fmt.Fprintf(&b, "  Lost:    it serves provision %s, which does not exist any more\n", m.Status.Provision)
	case m.Status.HoldsData != "":
		fmt.Fprintf(&b, "  Lost:    the data of %s, which was kept on its disks\n", m.Status.HoldsData)
	}
	if m.Spec.BMC == nil {
		b.WriteString("  It has no BMC: boot it from the network by hand, when trivet why says so.\n")
	} else if m.Status.State == trivet.MachineActive {
		b.WriteString("  What runs on it is stopped: its BMC power-cycles it.\n")
	}
	b.WriteString("  ALL DATA that the actions of its template overwrite is destroyed. Its disks:\n")
	writeDisks(&b, m.Status.Inventory)
	for _, image := range run.Images {
		fmt.Fprintf(&b, "  Image:   %s, %s\n", printable(image.Name), image.Blob.Digest)
	}
	if p.platform != "" {
		fmt.Fprintf(&b, "  Program: that of its platform, %s, unless the image has its own\n", printable(p.platform))
	}
	fmt.Fprintf(&b, "  Votes:   %s\n", p.Join.Before)
	if p.Join.Refused == "" {
		fmt.Fprintf(&b, "           afterwards %s\n", p.Join.After)
	}
	if p.Join.Role != trivet.RoleWitness {
		b.WriteString("  It gets the keys of the cluster: root on it can read all secrets.\n")
	}
	if p.Join.Next != "" {
		fmt.Fprintf(&b, "  Next:    %s\n", p.Join.Next)
	}
	if p.Join.Refused != "" {
		fmt.Fprintf(&b, "  It is refused now: %s; %s\n", p.Join.Refused, p.Join.Remedy)
	}
	return b.String()
}
