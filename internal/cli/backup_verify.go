package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/trivet-project/trivet/internal/recovery"
)

func (a *app) backupVerify() *cobra.Command {
	var backup recovery.Location
	var file, temp string
	var record bool
	c := &cobra.Command{
		Use: "verify BACKUP --key FILE", Short: "Prove that a backup can be restored",
		Long: "Prove that a backup can be restored: restore its store into a temporary directory, decrypt every\n" +
			"value, decode and validate every record, check that records refer to each other as they must, and read\n" +
			"the contents of its blobs where they were saved. It needs no head, and does not change the backup. The\n" +
			"exit status is 1 where anything is wrong. Where this computer has the credential of an admin, the\n" +
			"proof is recorded in the cluster, and trivet status shows its age.\n\n" +
			"By the recovery key, it also finds a backup that was changed, or that another party made.\n\n" +
			aboutS3,
		Example: "  trivet backup verify /srv/backup/NAME.backup --key recovery.key\n" +
			"  trivet backup verify NAME.backup --key recovery.key --temp /var/tmp -o json\n" +
			"  trivet backup verify s3://backups/site1/NAME.backup --key recovery.key",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			backup.Path = args[0]
			err := a.verifyBackup(cmd.Context(), backup, file, temp, record)
			return a.interrupted(cmd.Context(), err, "interrupted")
		},
	}
	c.Flags().StringVar(&file, "key", "", "file of the recovery key")
	c.Flags().StringVar(&temp, "temp", "",
		"where to restore; it needs the size of the backup and 136 MiB (default: TMPDIR)")
	c.Flags().BoolVar(&record, "record", true,
		"record it in the cluster, for trivet status, where an admin's credential is configured")
	s3Flags(c, &backup)
	c.MarkFlagRequired("key")
	a.outputForms(c, "table", "json", "yaml")
	return c
}

func (a *app) verifyBackup(ctx context.Context, backup recovery.Location, file, temp string,
	record bool) error {
	key, err := recovery.ReadKey(file)
	if err != nil {
		return err
	}
	progress, end := a.transfers()
	report, err := recovery.Verify(ctx, backup, key, temp, progress)
	end()
	if err != nil {
		return err
	}
	if record && report.Found == 0 {
		a.recordVerified(ctx, report.Entry)
	}
	if a.output != "table" {
		err = a.showValue(report)
	} else {
		a.showReport(report)
	}
	if err == nil && report.Found > 0 {
		err = ExitError(1)
	}
	return err
}

func (a *app) showReport(r recovery.Report) {
	for _, problem := range r.Problems {
		fmt.Fprintf(a.Out, "problem: %s\n", printable(problem))
	}
	if more := r.Found - len(r.Problems); more > 0 {
		fmt.Fprintf(a.Out, "and %d more problems\n", more)
	}
	records := 0
	for _, kind := range slices.Sorted(maps.Keys(r.Records)) {
		records += r.Records[kind]
	}
	fmt.Fprintf(a.Out, "%s of cluster %s: revision %d; %d values decrypted, %d records; contents of %d of %d blobs "+
		"read\n", printable(r.Name), printable(r.Cluster), r.Revision, r.Values, records, r.Checked, r.Blobs)
	if r.Found == 0 {
		fmt.Fprintln(a.Out, "it can be restored")
		return
	}
	fmt.Fprintf(a.Err, "trivet: %d problems: use another backup where there is one\n", r.Found)
}
