package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

// releaseFlags are the flags of trivet release.
type releaseFlags struct {
	keepData, noWipe, yes, wait bool
	check, all                  bool // of trivet check
}

func (f *releaseFlags) mode() trivet.ReleaseMode {
	switch {
	case f.check && f.all:
		return trivet.ReleaseCheckAll
	case f.check:
		return trivet.ReleaseCheck
	case f.keepData:
		return trivet.ReleaseKeepData
	case f.noWipe:
		return trivet.ReleaseNoWipe
	}
	return trivet.ReleaseWipe
}

// op and doing say in texts what is done.
func (f *releaseFlags) op() string {
	if f.check {
		return "check"
	}
	return "release"
}

func (f *releaseFlags) doing() string {
	if f.check {
		return "checked"
	}
	return "released"
}

func (a *app) release() *cobra.Command {
	var f releaseFlags
	c := &cobra.Command{
		Use:   "release MACHINE|PROVISION...",
		Short: "Stop machines, wipe their disks and make them available",
		Long: "Stop machines, wipe their disks and make them available. The provision that a machine serves is deleted.\n\n" +
			"The machine is power-cycled into the installer by its BMC. Its disks are erased at the same time, each by\n" +
			"the best method that it does not refuse: NVMe sanitize or format, ATA secure erase, discard, or else every\n" +
			"byte is overwritten. Then both ends and samples of each disk are read, and the machine is powered off.\n" +
			"Without a BMC, boot the machine from the network by hand: trivet why says when.\n\n" +
			"  --no-wipe    only stops the machine: what is on its disks stays until a provision overwrites it\n" +
			"  --keep-data  also keeps the disks: no selector chooses the machine, only a provision that names it,\n" +
			"               until trivet accept or trivet release without this flag\n\n" +
			"A release that fails leaves the machine in quarantine. A machine that is in quarantine stays there when\n" +
			"its release has succeeded: trivet accept, or a trivet check that finds nothing, ends that. To cancel a\n" +
			"release: trivet quarantine.\n" +
			"NAME is looked up as a machine and as a provision; write machine/NAME or provision/NAME where both exist.",
		Example: "  trivet release m1\n  trivet release provision/web1 --yes --wait\n  trivet release m1 --keep-data\n" +
			"  trivet release m1 m2 --no-wipe --yes -o json",
		Args: cobra.MinimumNArgs(1), ValidArgsFunction: a.completeNames("machines"),
		RunE: a.runRelease(&f),
	}
	c.Flags().BoolVar(&f.noWipe, "no-wipe", false, "only stop the machine; the next provision may overwrite its disks")
	c.Flags().BoolVar(&f.keepData, "keep-data", false,
		"keep what is on the disks: only a provision that names the machine may use it")
	c.Flags().BoolVar(&f.yes, "yes", false, "do not ask")
	c.Flags().BoolVar(&f.wait, "wait", false, "wait until the releases have ended; exit status 1 if one failed")
	c.MarkFlagsMutuallyExclusive("no-wipe", "keep-data")
	a.outputForms(c, "table", "json", "yaml")
	return c
}

// runRelease is what trivet release and trivet check do.
func (a *app) runRelease(f *releaseFlags) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		cl, err := a.connect()
		if err != nil {
			return err
		}
		return a.releaseAll(cmd.Context(), cl, args, f)
	}
}

// releaseView is a release that has begun.
type releaseView struct {
	Machine   string              `json:"machine"`
	Mode      trivet.ReleaseMode  `json:"mode"`
	Provision string              `json:"provision,omitempty"` // that was deleted
	Workflow  string              `json:"workflow,omitempty"`  // the run
	State     trivet.MachineState `json:"state,omitempty"`
	Error     string              `json:"error,omitempty"`
}

// releaseAll asks once about all machines, requests each release, and waits for them where that is wanted.
func (a *app) releaseAll(ctx context.Context, cl *client.Client, names []string, f *releaseFlags) error {
	var machines []*trivet.Machine
	for _, name := range names {
		m, err := a.findMachine(ctx, cl, f.op(), name)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(machines, func(o *trivet.Machine) bool { return o.Name == m.Name }) {
			machines = append(machines, m)
		}
	}
	if err := a.confirmRelease(ctx, machines, f); err != nil {
		return err
	}
	views, failed := make([]releaseView, len(machines)), false
	for i, m := range machines {
		v := &views[i]
		*v = releaseView{Machine: m.Name, Mode: f.mode(), Provision: m.Status.Provision}
		err := cl.Release(ctx, m.Name, trivet.ReleaseRequest{Mode: v.Mode, Provision: v.Provision})
		if err == nil {
			err = v.read(ctx, cl)
		}
		a.reportRelease(v, err, &failed, fmt.Sprintf("is being %s by workflow %s", f.doing(), v.Workflow))
	}
	for i := range views {
		if v := &views[i]; f.wait && v.Error == "" {
			err := v.wait(ctx, cl, f.op())
			if err != nil && ctx.Err() != nil {
				return a.interrupted(ctx, err, "the %s goes on; to see it: trivet why %s", f.op(), v.Machine)
			}
			a.reportRelease(v, err, &failed, fmt.Sprintf("is %s", v.State))
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

// reportRelease prints what happened to a machine, and records an error.
func (a *app) reportRelease(v *releaseView, err error, failed *bool, text string) {
	switch {
	case err != nil:
		v.Error, *failed = cmp.Or(hintOf(err), err.Error()), true
		PrintError(a.Err, err)
	case a.output == "table":
		fmt.Fprintf(a.Out, "machine/%s %s\n", v.Machine, text)
	}
}

// findMachine returns the machine of a name, or of a provision with that name, for an operation.
func (a *app) findMachine(ctx context.Context, cl *client.Client, op, arg string) (*trivet.Machine, error) {
	kind, name, hasKind := strings.Cut(arg, "/")
	if !hasKind {
		kind, name = "", arg
	}
	if kind != "" && kind != "machine" && kind != "provision" {
		return nil, fmt.Errorf("%w: %q: write machine/NAME or provision/NAME", trivet.ErrInvalid, arg)
	}
	var m *trivet.Machine
	var p *trivet.Provision
	var err error
	if kind != "provision" {
		if m, err = client.Of[trivet.Machine](cl).Get(ctx, name); err != nil &&
			(kind == "machine" || !errors.Is(err, trivet.ErrNotFound)) {
			return nil, err
		}
	}
	if kind != "machine" {
		p, err = client.Of[trivet.Provision](cl).In(a.project()).Get(ctx, name)
		if err != nil && (kind == "provision" || !errors.Is(err, trivet.ErrNotFound)) {
			return nil, err
		}
	}
	switch {
	case m != nil && p != nil && p.Status.Machine != m.Name:
		return nil, fmt.Errorf("%w: %s is a machine and a provision; write machine/%[2]s or provision/%[2]s",
			trivet.ErrInvalid, name)
	case m != nil:
		return m, nil
	case p != nil:
		return a.machineOf(ctx, cl, op, p)
	}
	return nil, fmt.Errorf("%s %s: %w: there is no machine and no provision of that name", op, name, trivet.ErrNotFound)
}

// machineOf returns the machine that serves a provision.
func (a *app) machineOf(ctx context.Context, cl *client.Client, op string, p *trivet.Provision) (*trivet.Machine,
	error) {
	none := &trivet.Error{Op: op, Kind: "Provision", Name: p.ShortName(),
		Err:  fmt.Errorf("%w: no machine serves it", trivet.ErrConflict),
		Hint: fmt.Sprintf("delete it: trivet delete%s provision %s", a.flagText(), p.Name)}
	if op != "release" {
		none.Hint = fmt.Sprintf("see: trivet describe%s provision %s", a.flagText(), p.Name)
	}
	if p.Status.Machine == "" {
		return nil, none
	}
	m, err := client.Of[trivet.Machine](cl).Get(ctx, p.Status.Machine)
	if err != nil {
		return nil, err
	}
	if m.UID != p.Status.MachineUID || m.Status.Provision != p.ShortName() {
		return nil, none
	}
	return m, nil
}

// read completes the view by the machine's record.
func (v *releaseView) read(ctx context.Context, cl *client.Client) error {
	m, err := client.Of[trivet.Machine](cl).Get(ctx, v.Machine)
	if err == nil {
		v.Workflow, v.State = m.Status.Workflow, m.Status.State
	}
	return err
}

// wait waits until the run has ended.
func (v *releaseView) wait(ctx context.Context, cl *client.Client, op string) error {
	full := trivet.Resolve("", v.Workflow)
	project, name := trivet.SplitName(full)
	runs := newFeed(ctx, cl, "Workflow", project, name)
	defer runs.close()
	failed := &trivet.Error{Op: op, Kind: "Machine", Name: v.Machine, Hint: "trivet why " + v.Machine}
	for e := range runs.events {
		w, ok := e.Record.(*trivet.Workflow)
		switch {
		case e.Type == client.Delete:
			failed.Err = fmt.Errorf("%w: its run was deleted", trivet.ErrNotFound)
			return failed
		case e.Type != client.Put || !ok || !w.Status.State.Ended():
			continue
		case w.Status.State == trivet.WorkflowSucceeded:
			return v.read(ctx, cl)
		}
		failed.Err = fmt.Errorf("the run was %s", w.Status.State)
		if f := w.Status.Failure; f != nil {
			failed.Err = fmt.Errorf("%s: %s", f.Step, f.Cause)
		}
		return failed
	}
	return errors.Join(runs.err, context.Cause(ctx))
}
