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

// promoteFlags are the flags of trivet head promote.
type promoteFlags struct {
	content                provisionFlags
	name                   string
	witness, standby, sync bool
	plan, yes              bool
	timeout                time.Duration
	machine, provision     string // the names
}

func (f *promoteFlags) role() string {
	switch {
	case f.witness:
		return trivet.RoleWitness
	case f.standby && !f.sync:
		return trivet.RoleStandby
	}
	return trivet.RoleVoter
}

func (a *app) headPromote() *cobra.Command {
	var f promoteFlags
	c := &cobra.Command{
		Use:   "promote MACHINE",
		Short: "Install a machine as a head, where there is no spare host",
		Long: "Install a machine as a head, where there is no spare host: what it serves now is given up, its disks are\n" +
			"overwritten by a template that has an action of use head, and the installed system joins the cluster at its\n" +
			"first boot, once, from the address of the machine. The plan is shown before, and nothing else than what it\n" +
			"shows is installed. The command waits until the head is a member.\n\n" +
			"When it is interrupted, the same command goes on. While the head is a member, its machine is not released,\n" +
			"installed again, renamed or deleted: trivet head demote ends that. To replace a head by a machine, promote\n" +
			"that first, and then remove or demote the other one: writes do not stop.\n\n" +
			"An administrator does this: the machine gets the keys of the cluster. A machine that is available is not\n" +
			"claimed by others meanwhile, and one in service is released with --keep-data, so that only this provision\n" +
			"uses it.",
		Example: "  trivet apply -f head.yaml          # a template, such as docs/examples/head.yaml\n" +
			"  trivet head promote m7 --plan      # what is lost, who votes afterwards\n" +
			"  trivet head promote m7 --ssh-key ~/.ssh/id_ed25519.pub\n" +
			"  trivet head promote m8 --template head --param image=debian-13 --witness --yes",
		Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeNames("machines"),
		RunE: func(cmd *cobra.Command, args []string) error {
			f.machine = args[0]
			f.provision = cmp.Or(f.name, "head-"+args[0])
			if f.sync && !f.standby {
				return &trivet.FieldError{Field: "--sync", Problem: "is for a standby: add --standby"}
			}
			cl, err := a.connect()
			if err != nil {
				return err
			}
			return a.promote(cmd.Context(), cl, &f)
		},
	}
	c.Flags().StringVar(&f.content.template, "template", "head", "name of the template")
	c.Flags().StringVar(&f.name, "name", "", "name of the provision (default: head-MACHINE)")
	c.Flags().StringToStringVar(&f.content.params, "param", nil, "template parameters, name=value")
	c.Flags().StringVar(&f.content.hostname, "hostname", "",
		"host name of the installed system (default: the machine's name)")
	c.Flags().StringArrayVar(&f.content.sshKeys, "ssh-key", nil,
		"file with public SSH keys, as in authorized_keys; can be repeated")
	c.Flags().StringVar(&f.content.userData, "user-data", "", "file with cloud-init user-data")
	c.Flags().BoolVar(&f.witness, "witness", false, "as a witness, which votes but serves nothing")
	c.Flags().BoolVar(&f.standby, "standby", false, "as a standby, which follows the others and does not vote")
	c.Flags().BoolVar(&f.sync, "sync", false, "let the standby vote: it then has all that is acknowledged")
	c.Flags().BoolVar(&f.plan, "plan", false, "show what it means, and change nothing")
	c.Flags().BoolVar(&f.yes, "yes", false, "do not ask")
	c.Flags().DurationVar(&f.timeout, "timeout", 10*time.Minute,
		"how long the installed system may take to join; the command can be repeated")
	c.MarkFlagsMutuallyExclusive("witness", "standby")
	c.MarkFlagsMutuallyExclusive("plan", "yes")
	c.RegisterFlagCompletionFunc("template", a.completeFlag("templates"))
	return c
}

// promote goes on from wherever an earlier run of it has ended: what it has done is in the records.
func (a *app) promote(ctx context.Context, cl *client.Client, f *promoteFlags) error {
	m, err := a.findPromotable(ctx, cl, f)
	if err != nil {
		return err
	}
	head, err := headOn(ctx, cl, m)
	if err != nil {
		return err
	}
	if head != nil {
		if f.plan {
			fmt.Fprintf(a.Out, "machine/%s is head/%s, which is a %s. Nothing was changed.\n", m.Name, head.Name,
				head.Status.State)
			return nil
		}
		return a.awaitHead(ctx, cl, m, f)
	}
	begun, err := a.begun(ctx, cl, f)
	if err == nil {
		err = checkNotRemoved(ctx, cl, m)
	}
	if err != nil {
		return err
	}
	if !begun.goesOn(m) {
		if done, err := a.beginPromotion(ctx, cl, m, f, begun.provision); done || err != nil {
			return err
		}
	} else if f.plan {
		fmt.Fprintf(a.Out, "provision/%s makes machine %s a head, and is %s. The same command without --plan goes on.\n",
			f.provision, m.Name, begun.provision.Status.State)
		return nil
	}
	if err := a.watchProvision(ctx, cl, f.provision); err != nil {
		if ctx.Err() != nil {
			fmt.Fprintf(a.Err, "to go on: trivet head promote%s %s\n", a.flagText(), m.Name)
		}
		return err
	}
	return a.awaitHead(ctx, cl, m, f)
}

// findPromotable returns the machine. One that is at work, or in quarantine, is refused by checkFree.
func (a *app) findPromotable(ctx context.Context, cl *client.Client, f *promoteFlags) (*trivet.Machine, error) {
	if err := checkMachine(ctx, cl, f.machine); err != nil {
		return nil, err
	}
	return client.Of[trivet.Machine](cl).Get(ctx, f.machine)
}

// checkFree refuses a machine that cannot be promoted now.
func checkFree(m *trivet.Machine) error {
	refuse := func(hint, why string) error {
		return &trivet.Error{Op: "promote", Kind: "Machine", Name: m.Name, Hint: hint,
			Err: fmt.Errorf("%w: it is %s", trivet.ErrConflict, why)}
	}
	switch m.Status.State {
	case trivet.MachineClaimed, trivet.MachineProvisioning:
		return refuse("wait until its run has ended, or end it: trivet release "+m.Name,
			fmt.Sprintf("being installed for provision %s", m.Status.Provision))
	case trivet.MachineDiscovered, trivet.MachineQuarantined, trivet.MachineUnverified:
		return refuse("see trivet why "+m.Name+", and then: trivet accept "+m.Name, string(m.Status.State))
	}
	if m.Spec.Cordoned {
		return refuse(fmt.Sprintf(`trivet patch machine %s '{"spec": {"cordoned": false}}'`, m.Name), "cordoned")
	}
	return nil
}

// checkNotRemoved refuses a machine whose head was removed, and that is still as it was: its system cannot join again.
func checkNotRemoved(ctx context.Context, cl *client.Client, m *trivet.Machine) error {
	heads, _, err := client.Of[trivet.Head](cl).List(ctx, client.ListOptions{})
	if err != nil {
		return err
	}
	for _, h := range heads {
		if h.Status.MachineUID != m.UID || h.Status.State != trivet.HeadRemoved {
			continue // one may have joined just now
		}
		switch is, err := machineOfHead(ctx, cl, h); {
		case err != nil:
			return err
		case is != nil:
			return &trivet.Error{Op: "promote", Kind: "Machine", Name: m.Name, Hint: "first: trivet head demote " + h.Name,
				Err: fmt.Errorf("%w: it was %s, which was removed, and cannot join again", trivet.ErrConflict, h.Name)}
		}
	}
	return nil
}

// headOn returns the head that runs on a machine; nil: none.
func headOn(ctx context.Context, cl *client.Client, m *trivet.Machine) (*trivet.Head, error) {
	heads, _, err := client.Of[trivet.Head](cl).List(ctx, client.ListOptions{})
	for _, h := range heads {
		if isHeadOn(h, m) {
			return h, nil
		}
	}
	return nil, err
}

func isHeadOn(h *trivet.Head, m *trivet.Machine) bool {
	return h.Status.MachineUID == m.UID && h.Status.State != trivet.HeadRemoved
}

// promotion is what an earlier run of the command has begun.
type promotion struct{ provision *trivet.Provision } // nil: nothing

// begun returns what an earlier run of the command has begun.
func (a *app) begun(ctx context.Context, cl *client.Client, f *promoteFlags) (promotion, error) {
	p, err := client.Of[trivet.Provision](cl).In(a.project()).Get(ctx, f.provision)
	switch {
	case errors.Is(err, trivet.ErrNotFound):
		return promotion{}, nil
	case err == nil && (p.Spec.Head == nil || p.Spec.Machine != f.machine):
		err = &trivet.Error{Op: "promote", Kind: "Provision", Name: f.provision, Hint: "choose another name: --name NAME",
			Err: fmt.Errorf("%w: it is for something else", trivet.ErrExists)}
	}
	return promotion{p}, err
}

// goesOn reports whether nothing is left to confirm: the provision has its machine, or that is being released.
func (b promotion) goesOn(m *trivet.Machine) bool {
	p := b.provision
	return p != nil && p.Status.State != trivet.ProvisionFailed &&
		(m.Status.Provision == "" || m.Status.Provision == p.ShortName())
}

// beginPromotion shows the plan and asks. Then it creates the provision, so that what is wrong with it shows before
// anything stops, and releases the machine from what it serves. former is the provision of an earlier run, which has
// failed, or still waits for that.
func (a *app) beginPromotion(ctx context.Context, cl *client.Client, m *trivet.Machine, f *promoteFlags,
	former *trivet.Provision) (planned bool, err error) {
	if err := checkFree(m); err != nil {
		return false, err
	}
	p, err := f.content.record(f.provision)
	if err != nil {
		return false, err
	}
	p.Spec.Machine, p.Spec.Head = m.Name, &trivet.ProvisionHead{Role: f.role()}
	plan, err := a.planPromotion(ctx, cl, m, p)
	if err != nil {
		return false, err
	}
	if planned, err := a.decide(ctx, plan, f); planned || err != nil {
		return planned, err
	}
	p.Spec.Head.Plan = plan.Plan
	all := client.Of[trivet.Provision](cl).In(a.project())
	if former != nil {
		if err := all.Delete(ctx, former.Name); err != nil && !errors.Is(err, trivet.ErrNotFound) {
			return false, err
		}
	}
	if _, err := all.Create(ctx, p); err != nil {
		return false, a.interrupted(ctx, err, "interrupted; to go on: trivet head promote%s %s", a.flagText(), m.Name)
	}
	fmt.Fprintf(a.Out, "provision/%s created\n", p.Name)
	if m.Status.Provision == "" {
		return false, nil
	}
	err = cl.Release(ctx, m.Name, trivet.ReleaseRequest{Mode: trivet.ReleaseKeepData, Provision: m.Status.Provision})
	if err == nil {
		fmt.Fprintf(a.Out, "provision/%s deleted: machine %s is stopped\n", m.Status.Provision, m.Name)
	}
	return false, a.interrupted(ctx, err, "interrupted; to go on: trivet head promote%s %s", a.flagText(), m.Name)
}

// decide shows the plan where only that is wanted, refuses what is not possible, and asks.
func (a *app) decide(ctx context.Context, plan *promotePlan, f *promoteFlags) (planned bool, err error) {
	if plan.Join.Refused != "" {
		fmt.Fprint(a.Err, plan.text())
		return false, &trivet.Error{Op: "promote", Kind: "Machine", Name: f.machine, Hint: plan.Join.Remedy,
			Err: fmt.Errorf("%w: %s", trivet.ErrConflict, plan.Join.Refused)}
	}
	return a.planOrConfirm(ctx, "promote", f.plan, f.yes, func() (string, error) {
		text := plan.text()
		if f.plan {
			text += "Nothing was changed.\n"
		}
		return text, nil
	})
}

// awaitHead waits until the head on a machine is a member.
func (a *app) awaitHead(ctx context.Context, cl *client.Client, m *trivet.Machine, f *promoteFlags) error {
	limited, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	fmt.Fprintf(a.Err, "machine %s is installed; it joins\n", m.Name)
	shown := ""
	for e, err := range client.Of[trivet.Head](cl).Watch(limited, client.WatchOptions{}) {
		if limited.Err() != nil {
			break
		}
		if err != nil {
			return err
		}
		h, ok := e.Record.(*trivet.Head)
		if !ok || e.Type != client.Put || !isHeadOn(h, m) {
			continue
		}
		if h.Status.State == trivet.HeadMember {
			fmt.Fprintf(a.Out, "machine/%s is head/%s, a %s\n", m.Name, h.Name, h.Spec.RoleOrDefault())
			return nil
		}
		now := fmt.Sprintf("%s is %s: %s", h.Name, h.Status.State, cmp.Or(h.Status.Reason, "it has not started yet"))
		if now != shown {
			shown = now
			fmt.Fprintf(a.Err, "  %s\n", printable(now))
		}
	}
	if ctx.Err() != nil {
		fmt.Fprintf(a.Err, "it joins without this command; to wait again: trivet head promote%s %s\n", a.flagText(),
			m.Name)
		return ExitError(130)
	}
	return &trivet.Error{Op: "promote", Kind: "Machine", Name: m.Name,
		Err: fmt.Errorf("%w: it has not joined within %s%s", trivet.ErrUnavailable, f.timeout,
			strings.TrimSuffix("; "+shown, "; ")),
		Hint: "see journalctl -u trivet on it; to wait again, repeat the command; to install it again, first: " +
			"trivet release " + m.Name}
}
