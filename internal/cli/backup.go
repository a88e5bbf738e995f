package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/trivet-project/trivet/internal/recovery"
)

func (a *app) backup() *cobra.Command {
	c := &cobra.Command{
		Use: "backup", Short: "Back up the cluster, and prove that a backup can be restored",
		Long: "Back up the cluster, and prove that a backup can be restored. A backup is a file with everything in\n" +
			"the store at one revision, and the keys of the cluster, encrypted to the recovery key. The contents of\n" +
			"images and platforms are saved beside it by --blobs.",
		Example: "  trivet backup key > recovery.key      # once; keep it apart from the backups\n" +
			"  trivet backup create --to /srv/backup --blobs\n" +
			"  trivet backup list --in /srv/backup\n" +
			"  trivet backup verify /srv/backup/NAME.backup --key recovery.key\n" +
			"  trivet backup prune --in /srv/backup --keep 14\n" +
			"  trivet backup create --to s3://BUCKET/PREFIX --blobs      # docs/backup.md",
	}
	c.AddCommand(a.backupKey(), a.backupCreate(), a.backupList(), a.backupVerify(), a.backupPrune())
	return c
}

func (a *app) backupCreate() *cobra.Command {
	var to recovery.Location
	var blobs bool
	c := &cobra.Command{
		Use: "create --to DIR|s3://BUCKET/PREFIX", Short: "Make a backup in a directory or an S3 bucket",
		Long: "Make a backup in a directory of this computer, or in an S3 bucket, of everything that was acknowledged\n" +
			"before. It needs a quorum, and an account of role admin. Nothing in the cluster stops meanwhile.\n\n" +
			"With --blobs, the contents of images and platforms are saved, too: in DIR/blobs, where the backups of\n" +
			"a directory share them, so that only new contents are copied.\n\n" +
			"The backup is in the directory when it is complete and on the disk. One that was interrupted leaves\n" +
			"nothing that counts as a backup; the next command removes what it left.\n\n" + aboutS3,
		Example: "  trivet backup create --to /srv/backup\n  trivet backup create --to /srv/backup --blobs -o json\n" +
			"  trivet backup create --to s3://backups/site1 --blobs --s3-endpoint https://s3.example.com",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			err := a.createBackup(cmd.Context(), to, blobs)
			return a.interrupted(cmd.Context(), err, "interrupted; there is no new backup in %s", to.Path)
		},
	}
	c.Flags().StringVar(&to.Path, "to", "", "directory of the backups, which is created if it does not exist, or "+
		"s3://BUCKET/PREFIX")
	s3Flags(c, &to)
	c.Flags().BoolVar(&blobs, "blobs", false, "save the contents of images and platforms, too")
	c.MarkFlagRequired("to")
	a.outputForms(c, "table", "json", "yaml")
	return c
}

// aboutS3 is for the help of the commands that have s3Flags.
const aboutS3 = "The credentials for an S3 bucket are those in AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and\n" +
	"AWS_SESSION_TOKEN, or of the profile AWS_PROFILE in ~/.aws/credentials; see docs/backup.md."

// s3Flags adds the flags of a location that may be in an S3 bucket.
func s3Flags(c *cobra.Command, l *recovery.Location) {
	c.Flags().StringVar(&l.S3.Endpoint, "s3-endpoint", "",
		"URL of the S3 server (default: AWS_ENDPOINT_URL, or that of Amazon)")
	c.Flags().StringVar(&l.S3.Region, "s3-region", "",
		"region of the bucket (default: AWS_REGION, or what the server says)")
}

func (a *app) createBackup(ctx context.Context, to recovery.Location, blobs bool) error {
	cl, err := a.connect()
	if err != nil {
		return err
	}
	progress, end := a.transfers()
	created, err := recovery.Create(ctx, to, cl, blobs, progress)
	end()
	if err != nil {
		return err
	}
	a.recordBackup(ctx, cl, created.Entry, false)
	if a.output != "table" {
		return a.showValue(created)
	}
	fmt.Fprintf(a.Out, "%s: %s at revision %d\n", to.Of(created.Name), bytesText(created.Bytes),
		created.Revision)
	if blobs {
		fmt.Fprintf(a.Out, "%d blobs, %s; %d copied, %s\n", created.Blobs, bytesText(created.BlobBytes), created.Copied,
			bytesText(created.CopiedBytes))
	}
	return nil
}

// transfers displays the progress of transfers, one after the other.
func (a *app) transfers() (progress recovery.Progress, end func()) {
	var now *transfer
	end = func() {
		if now != nil {
			now.end()
		}
	}
	return func(name string, done, total int64) {
		if now == nil || now.name != name {
			end()
			now = a.transfer(name, total)
		}
		now.update(done)
	}, end
}

func (a *app) backupList() *cobra.Command {
	var in recovery.Location
	c := &cobra.Command{
		Use: "list --in DIR|s3://BUCKET/PREFIX", Aliases: []string{"ls"},
		Short: "List the backups in a directory or an S3 bucket",
		Long: "List the backups in a directory, by cluster, the newest first. A backup is complete, or damaged: it\n" +
			"lacks its end, or contents of blobs that it was made with, or its manifest was changed. What else was\n" +
			"changed, trivet backup verify finds.\n\n" + aboutS3,
		Example: "  trivet backup list --in /srv/backup\n  trivet backup list --in /srv/backup -o json\n" +
			"  trivet backup list --in s3://backups/site1",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, err := recovery.List(cmd.Context(), in)
			if err != nil {
				return err
			}
			return a.showBackups(all)
		},
	}
	c.Flags().StringVar(&in.Path, "in", "", "directory of the backups, or s3://BUCKET/PREFIX")
	s3Flags(c, &in)
	c.MarkFlagRequired("in")
	a.outputForms(c, "table", "json", "yaml")
	return c
}

func (a *app) showBackups(all []recovery.Entry) error {
	if a.output != "table" {
		return a.showValue(all)
	}
	if len(all) == 0 {
		fmt.Fprintln(a.Err, "no backups")
		return nil
	}
	rows := [][]string{{"NAME", "STATE", "REVISION", "SIZE", "BLOBS", "PROBLEM"}}
	for _, e := range all {
		blobs := "-"
		if e.Contents {
			blobs = fmt.Sprintf("%d/%d", e.Blobs-e.Missing, e.Blobs)
		}
		rows = append(rows, []string{printable(e.Name), e.State, fmt.Sprint(e.Revision), bytesText(e.Bytes), blobs,
			printable(e.Problem)})
	}
	return align(a.Out, rows)
}

func (a *app) backupPrune() *cobra.Command {
	var in recovery.Location
	keep := 0
	c := &cobra.Command{
		Use: "prune --in DIR|s3://BUCKET/PREFIX --keep N", Short: "Remove old backups from a directory or an S3 bucket",
		Long: "Keep the newest N complete backups of each cluster in a directory, and remove the older ones, with\n" +
			"the contents of blobs that no other backup needs. Damaged backups are kept and do not count. While a\n" +
			"file has a manifest that cannot be read, no contents are removed, as it may need them.\n\n" + aboutS3,
		Example: "  trivet backup prune --in /srv/backup --keep 14\n" +
			"  trivet backup prune --in s3://backups/site1 --keep 14",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := recovery.Prune(cmd.Context(), in, keep)
			if err != nil {
				return err
			}
			return a.showPruned(p)
		},
	}
	c.Flags().StringVar(&in.Path, "in", "", "directory of the backups, or s3://BUCKET/PREFIX")
	s3Flags(c, &in)
	c.Flags().IntVar(&keep, "keep", 0, "how many backups of each cluster to keep, at least 1")
	c.MarkFlagRequired("in")
	c.MarkFlagRequired("keep")
	a.outputForms(c, "table", "json", "yaml")
	return c
}

func (a *app) showPruned(p recovery.Pruned) error {
	for _, name := range p.Unreadable {
		fmt.Fprintf(a.Err, "trivet: warning: %s cannot be read, so no contents of blobs were removed; remove the "+
			"file, or replace it by an intact copy\n", printable(name))
	}
	if a.output != "table" {
		return a.showValue(p)
	}
	for _, name := range p.Removed {
		fmt.Fprintf(a.Out, "%s removed\n", printable(name))
	}
	fmt.Fprintf(a.Out, "%d backups kept; %d removed, with %d blobs, %s\n", len(p.Kept), len(p.Removed), p.Blobs,
		bytesText(p.BlobBytes))
	return nil
}
