package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

// demoteFlags are the flags of trivet head demote.
type demoteFlags struct{ keep, plan, yes, wait bool }

func (a *app) headDemote() *cobra.Command {
	var f demoteFlags
	c := &cobra.Command{
		Use:   "demote HEAD",
		Short: "Remove a head that runs on a machine, and make the machine available",
		Long: "Remove a head that runs on a machine, as trivet head remove does, and then release the machine: it is\n" +
			"stopped, its disks are wiped, since they have the keys of the cluster, and it is available again. With\n" +
			"--keep it keeps its installed system and its provision; trivet release releases it later.\n\n" +
			"The plan is shown before. It is refused where trivet head remove is: the last full head that votes stays,\n" +
			"and most of the voters that are left must be up. When it is interrupted, the same command goes on.",
		Example: "  trivet head demote head3 --plan\n  trivet head demote head3\n  trivet head demote head3 --yes --wait\n" +
			"  trivet head demote head3 --keep",
		Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeNames("heads"),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := a.connect()
			if err != nil {
				return err
			}
			return a.demote(cmd.Context(), cl, args[0], &f)
		},
	}
	c.Flags().BoolVar(&f.keep, "keep", false,
		"leave the machine as it is: it keeps its installed system and its provision")
	c.Flags().BoolVar(&f.plan, "plan", false, "show what it means, and change nothing")
	c.Flags().BoolVar(&f.yes, "yes", false, "do not ask")
	c.Flags().BoolVar(&f.wait, "wait", false, "wait until the machine is available")
	c.MarkFlagsMutuallyExclusive("plan", "yes")
	c.MarkFlagsMutuallyExclusive("keep", "wait")
	return c
}

// demote goes on from wherever an earlier run of it has ended: a removed head is still in the records.
func (a *app) demote(ctx context.Context, cl *client.Client, name string, f *demoteFlags) error {
	h, err := client.Of[trivet.Head](cl).Get(ctx, name)
	if err != nil {
		return noSuchHead(err, "demote", name)
	}
	if h.Status.MachineUID == "" {
		return &trivet.Error{Op: "demote", Kind: "Head", Name: name, Hint: "trivet head remove " + name,
			Err: fmt.Errorf("%w: it does not run on a machine that trivet head promote has installed", trivet.ErrConflict)}
	}
	m, err := machineOfHead(ctx, cl, h)
	if err != nil {
		return err
	}
	removed := h.Status.State == trivet.HeadRemoved
	if removed && (m == nil || f.keep) {
		fmt.Fprintf(a.Out, "head/%s is already removed\n", name)
		return nil
	}
	planned, err := a.planOrConfirm(ctx, "demote", f.plan, f.yes,
		func() (string, error) { return demoteText(ctx, cl, h, m, f) })
	if planned || err != nil {
		return err
	}
	if !removed {
		if err := cl.RemoveHead(ctx, name); err != nil {
			return err
		}
		if err := a.waitRemoved(ctx, cl, name); err != nil {
			return err
		}
	}
	if m == nil || f.keep {
		return nil
	}
	err = a.releaseAll(ctx, cl, []string{"machine/" + m.Name}, &releaseFlags{yes: true, wait: f.wait})
	if errors.Is(err, trivet.ErrUnauthenticated) {
		fmt.Fprintf(a.Err, "machine %s is not released yet: repeat the command with the credential of another head\n",
			m.Name)
	}
	return err
}

// machineOfHead returns the machine that a head runs on, or was installed on; nil where it is that no more.
func machineOfHead(ctx context.Context, cl *client.Client, h *trivet.Head) (*trivet.Machine, error) {
	m, err := client.Of[trivet.Machine](cl).Get(ctx, h.Status.Machine)
	switch {
	case errors.Is(err, trivet.ErrNotFound), err == nil && m.UID != h.Status.MachineUID:
		return nil, nil
	case err != nil:
		return nil, err
	}
	w, err := runOfMachine(ctx, cl, m)
	if err != nil || w == nil || w.UID != h.Status.Run || m.Status.Provision == "" {
		return nil, err
	}
	return m, nil
}

// runOfMachine returns the last run of a machine; nil: none.
func runOfMachine(ctx context.Context, cl *client.Client, m *trivet.Machine) (*trivet.Workflow, error) {
	if m.Status.Workflow == "" {
		return nil, nil
	}
	project, name := trivet.SplitName(trivet.Resolve("", m.Status.Workflow))
	w, err := client.Of[trivet.Workflow](cl).In(project).Get(ctx, name)
	if errors.Is(err, trivet.ErrNotFound) {
		return nil, nil
	}
	return w, err
}

// demoteText is the plan for people. It fails where the heads would refuse the removal.
func demoteText(ctx context.Context, cl *client.Client, h *trivet.Head, m *trivet.Machine, f *demoteFlags) (string,
	error) {
	text := ""
	if h.Status.State != trivet.HeadRemoved {
		l, err := leaving(ctx, cl, h.Name, false)
		if err != nil {
			return "", err
		}
		if l.Refused != "" {
			return "", &trivet.Error{Op: "demote", Kind: "Head", Name: h.Name, Hint: l.Remedy,
				Err: fmt.Errorf("%w: %s", trivet.ErrConflict, l.Refused)}
		}
		text = leaveText(l)
	}
	switch {
	case m == nil:
		text += fmt.Sprintf("Machine %s does not run what the head was installed as; it stays as it is.\n", h.Status.Machine)
	case f.keep:
		text += fmt.Sprintf("machine/%s stays as it is. Its disks have the keys of the cluster: wipe it later, by trivet "+
			"release.\n", m.Name)
	default:
		text += releaseText(m, trivet.ReleaseWipe)
	}
	if f.plan {
		text += "Nothing was changed.\n"
	}
	return text, nil
}
