package cli

import (
	"context"
	"errors"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

// fewMachines is up to how many machines have their provisions read one by one; those of more are read in pages.
const fewMachines = 16

// loadInstalled reads the provisions of machines, which have the address and the hostname of what is installed there.
func (a *app) loadInstalled(ctx context.Context, cl *client.Client, all []found) error {
	a.installed = map[string]*trivet.Provision{}
	if len(all) > fewMachines {
		return a.loadAllInstalled(ctx, cl)
	}
	for _, f := range all {
		m, ok := f.record.(*trivet.Machine)
		if !ok || m.Status.Provision == "" {
			continue
		}
		full := provisionOf(m)
		project, name := trivet.SplitName(full)
		p, err := client.Of[trivet.Provision](cl).In(project).Get(ctx, name)
		if err != nil && !errors.Is(err, trivet.ErrNotFound) {
			return err
		}
		if err == nil {
			a.installed[full] = p
		}
	}
	return nil
}

func (a *app) loadAllInstalled(ctx context.Context, cl *client.Client) error {
	provisions, _, err := client.Of[trivet.Provision](cl).AllProjects().List(ctx, client.ListOptions{})
	for _, p := range provisions {
		a.installed[p.FullName()] = p
	}
	return err
}

// provisionOf returns the full name of a machine's provision.
func provisionOf(m *trivet.Machine) string {
	return trivet.Resolve(trivet.DefaultProject, m.Status.Provision)
}

// installedColumns are the columns of the wide table of machines.
func (a *app) installedColumns() columns {
	return columnsOf(func(m *trivet.Machine) []string {
		return []string{a.addressOf(m), a.hostnameOf(m), powerCell(m), bmcText(m), modelText(m),
			reputationText(m.Status.Reputation), powerErrorText(m)}
	}, "ADDRESS", "HOSTNAME", "POWER", "BMC", "MODEL", "REPUTATION", "POWER ERROR")
}

// addressOf returns the address of a machine's boot port: that of its run, or else the fixed one.
func (a *app) addressOf(m *trivet.Machine) string {
	if p := a.installed[provisionOf(m)]; p != nil && p.Status.Address != "" {
		return p.Status.Address
	}
	for _, nic := range m.Spec.NICs {
		if nic.Address.IsValid() {
			return nic.Address.String()
		}
	}
	return ""
}

// hostnameOf returns the hostname of the system that is, or is being, installed.
func (a *app) hostnameOf(m *trivet.Machine) string {
	p := a.installed[provisionOf(m)]
	switch {
	case p == nil:
		return ""
	case p.Spec.Hostname != "":
		return p.Spec.Hostname
	}
	return m.Name
}
