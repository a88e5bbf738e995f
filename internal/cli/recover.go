package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/recovery"
)

// recoverFlags are the flags of trivet recover.
type recoverFlags struct {
	backup    recovery.Location
	data, key string
	survivor  bool
	plan, yes bool
	recovery.Request
}

func (a *app) recover() *cobra.Command {
	var f recoverFlags
	c := &cobra.Command{
		Use:   "recover {--from-backup PATH | --from-data-dir DIR | --from-survivor} --data-dir DIR",
		Short: "Recover a lost cluster from a backup, or from the data of one head",
		Long: "Recover a cluster that has lost its quorum, or all heads: make the data directory of the first head\n" +
			"of another incarnation of it, with its CA, keys and records. No head of the cluster may serve; while\n" +
			"one has a quorum, the command is refused.\n\n" +
			"  --from-backup    a backup, or a directory of them: the newest one; also s3://BUCKET/PREFIX. It needs\n" +
			"                   the recovery key, by --key FILE, or typed.\n" +
			"  --from-data-dir  the data directory of one full head that does not run\n" +
			"  --from-survivor  the data directory of this head itself, which is stopped: --data-dir\n\n" +
			"What was written since the records were saved is lost. The plan shows the bound of that. All other\n" +
			"heads are fenced: they refuse to serve when they learn of it, and say how to join again.\n\n" +
			"No machine is wiped or power-cycled by it. Provisions that have not ended are frozen until\n" +
			"trivet recover resolve, and machines that could be claimed are unverified until their BMCs report them\n" +
			"off, their agents are idle, or trivet accept.\n\n" +
			"A command that was interrupted is run again, with the same --data-dir.\n\n" + aboutS3,
		Example: "  trivet recover --from-backup /srv/backup --key recovery.key --data-dir /var/lib/trivet --plan\n" +
			"  trivet recover --from-backup /srv/backup --key recovery.key --data-dir /var/lib/trivet\n" +
			"  trivet recover --from-backup s3://backups/site1 --key recovery.key --data-dir /var/lib/trivet\n" +
			"  trivet recover --from-data-dir /mnt/var/lib/trivet --data-dir /var/lib/trivet\n" +
			"  trivet recover --from-survivor --data-dir /var/lib/trivet\n" +
			"  trivet recover list\n  trivet recover resolve web1 --cancel",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			err := a.recoverCluster(cmd.Context(), &f)
			return a.interrupted(cmd.Context(), err, "interrupted; to continue, run the same command again")
		},
	}
	c.Flags().StringVar(&f.backup.Path, "from-backup", "",
		"a backup, or a directory of backups, also s3://BUCKET/PREFIX")
	s3Flags(c, &f.backup)
	c.Flags().StringVar(&f.data, "from-data-dir", "", "data directory of a full head that does not run")
	c.Flags().BoolVar(&f.survivor, "from-survivor", false, "recover from what is in --data-dir")
	c.Flags().StringVar(&f.key, "key", "", "file of the recovery key (default: it is typed)")
	c.Flags().StringVar(&f.Dir, "data-dir", "/var/lib/trivet", "data directory of the new head")
	c.Flags().StringVar(&f.Name, "name", "", "name of the new head (default: the next one)")
	c.Flags().StringSliceVar(&f.Advertise, "advertise", nil,
		"addresses or names at which machines and clients will reach the new head, for the command that is printed")
	c.Flags().StringVar(&f.Cluster, "cluster", "", "ID that the cluster must have (default: any)")
	c.Flags().BoolVar(&f.plan, "plan", false, "show what would be lost and done, and do nothing")
	c.Flags().BoolVar(&f.yes, "yes", false, "do not ask")
	c.MarkFlagsOneRequired("from-backup", "from-data-dir", "from-survivor")
	c.MarkFlagsMutuallyExclusive("from-backup", "from-data-dir", "from-survivor")
	a.outputForms(c, "table", "json", "yaml")
	c.AddCommand(a.recoverList(), a.recoverResolve())
	return c
}

// errPlanned ends a recovery of which only the plan was requested.
var errPlanned = errors.New("only the plan was requested")

func (a *app) recoverCluster(ctx context.Context, f *recoverFlags) error {
	progress, end := a.transfers()
	f.Progress, f.Version = progress, a.Version
	var plan *recovery.Plan
	f.Approve = func(p *recovery.Plan) error {
		end()
		plan = p
		return a.approve(f, p)
	}
	done, err := a.recoverFrom(ctx, f)
	end()
	switch {
	case errors.Is(err, errPlanned):
		return a.showPlan(f, plan)
	case err != nil:
		return err
	case a.output != "table":
		return a.showValue(done)
	}
	if plan == nil { // all was ready
		fmt.Fprintln(a.Err, "an interrupted recovery was completed")
	}
	a.showRecovered(done)
	return nil
}

func (a *app) recoverFrom(ctx context.Context, f *recoverFlags) (*recovery.Plan, error) {
	switch {
	case f.survivor:
		return recovery.FromData(ctx, f.Dir, f.Request)
	case f.data != "":
		return recovery.FromData(ctx, f.data, f.Request)
	}
	key, err := a.recoveryKey(f.key)
	if err != nil {
		return nil, err
	}
	return recovery.FromBackup(ctx, f.backup, key, f.Request)
}

// recoveryKey reads the recovery key from a file, or asks for it.
func (a *app) recoveryKey(file string) (*recovery.Key, error) {
	if file != "" {
		return recovery.ReadKey(file)
	}
	in, ok := a.In.(*os.File)
	if !ok || !term.IsTerminal(int(in.Fd())) {
		return nil, &trivet.Error{Op: "read the recovery key", Hint: "pass its file by --key, or run it on a terminal",
			Err: fmt.Errorf("%w: there is no terminal to type it", trivet.ErrInvalid)}
	}
	fmt.Fprint(a.Err, "Recovery key (AGE-SECRET-KEY-1..., not shown): ")
	text, err := term.ReadPassword(int(in.Fd()))
	fmt.Fprintln(a.Err)
	if err != nil {
		return nil, err
	}
	return recovery.TypedKey(auth.Secret(text))
}

// approve shows the plan, and asks whether to go on.
func (a *app) approve(f *recoverFlags, p *recovery.Plan) error {
	if f.plan {
		return errPlanned
	}
	if f.yes {
		return nil
	}
	a.writePlan(a.Err, p)
	in, ok := a.In.(*os.File)
	if !ok || !term.IsTerminal(int(in.Fd())) {
		return &trivet.Error{Op: "recover", Hint: "read the plan, and add --yes, or run it on a terminal",
			Err: fmt.Errorf("%w: there is no terminal to confirm it", trivet.ErrInvalid)}
	}
	fmt.Fprintf(a.Err, "\nRecover cluster %s? Type yes: ", printable(p.Cluster))
	var answer string
	if _, err := fmt.Fscanln(a.In, &answer); err != nil || answer != "yes" {
		return &trivet.Error{Op: "recover", Err: fmt.Errorf("%w: it was not confirmed", trivet.ErrInvalid),
			Hint: "nothing was changed"}
	}
	return nil
}

func (a *app) showPlan(_ *recoverFlags, p *recovery.Plan) error {
	if a.output != "table" {
		return a.showValue(p)
	}
	a.writePlan(a.Out, p)
	return nil
}

func (a *app) showRecovered(p *recovery.Plan) {
	fmt.Fprintf(a.Out, "recovered cluster %s as incarnation %s; its first head is %s\n", printable(p.Cluster),
		p.Incarnation, p.Head)
	if p.BlobsMissing > 0 {
		fmt.Fprintf(a.Out, "%d of %d blobs have no content here: import these images and platforms again\n",
			p.BlobsMissing, p.Blobs)
	}
	fmt.Fprintf(a.Out, "start it: %s\n", startCommand(p))
	fmt.Fprintln(a.Out, "          with the other flags that heads of this site have, such as --dhcp or --config")
	if p.FrozenCount > 0 {
		fmt.Fprintf(a.Out, "then decide about %s: trivet recover list\n", counted(p.FrozenCount, "provision"))
	}
}

func startCommand(p *recovery.Plan) string {
	line := "trivet server --data-dir " + p.Dir
	for _, address := range p.Advertise {
		line += " --advertise " + address
	}
	return line
}

// writePlan writes a plan for people.
func (a *app) writePlan(w io.Writer, p *recovery.Plan) {
	fmt.Fprintf(w, "Recover cluster %s from %s %s\n\n", printable(p.Cluster), p.From, printable(p.Source))
	fmt.Fprintf(w, "Lost:    everything written after %s, which is %s ago by this clock,\n",
		p.DataTime.Format("2006-01-02 15:04:05 MST"), p.Age)
	fmt.Fprintf(w, "         with revisions from %d; how much that is cannot be known. Revisions continue after %d,\n"+
		"         and watches of earlier ones begin again.\n", p.Revision+1, p.Revision+p.Jump)
	if p.Torn {
		fmt.Fprintln(w, "         The end of the log was written incompletely, and is left out.")
	}
	fmt.Fprintf(w, "Kept:    %s; %s\n", machineCounts(p.Machines), counted(p.Blobs, "blob"))
	if p.BlobsMissing > 0 {
		fmt.Fprintf(w, "Missing: the contents of %s, to be imported again\n", counted(p.BlobsMissing, "blob"))
		for _, b := range p.MissingBlobs {
			fmt.Fprintf(w, "           %s, of %s\n", printable(b.Digest), printable(b.UsedBy))
		}
	}
	fmt.Fprintf(w, "Frozen:  %s, until trivet recover resolve\n", counted(p.FrozenCount, "provision"))
	for _, name := range p.Frozen {
		fmt.Fprintf(w, "           %s\n", name)
	}
	fmt.Fprintf(w, "         %s, which may be claimed again when it is known that nothing runs there\n",
		counted(p.Unverified, "machine"))
	fmt.Fprintf(w, "Dropped: %s\n", counted(p.Intents, "power request"))
	if len(p.Schedules) > 0 {
		fmt.Fprintf(w, "Stopped: backups of the schedules %s\n", listed(p.Schedules))
	}
	if p.Bucket {
		fmt.Fprintln(w, "Stopped: copies of images to the bucket, which is still read (spec.blobs.suspend of the site)")
	}
	fmt.Fprintf(w, "Fenced:  %s\n", listed(p.Heads))
	for _, answer := range p.Answering {
		fmt.Fprintf(w, "         %s responds at %s without a quorum, at revision %d", printable(answer.Head),
			answer.URL, answer.Revision)
		if answer.Revision > p.Revision {
			fmt.Fprint(w, ", WHICH IS LATER: stop it, and recover from its data: --from-survivor there")
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintf(w, "Created: %s in %s, incarnation %s\n", p.Head, p.Dir, p.Incarnation)
}
