package cli

import (
	"context"
	"fmt"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/recovery"
)

// recordBackup records in the cluster that a backup was created or verified. The backup is as good without.
func (a *app) recordBackup(ctx context.Context, cl *client.Client, e recovery.Entry, verified bool) {
	err := cl.ReportBackup(ctx, trivet.BackupReport{Cluster: e.Cluster, Verified: verified, Event: trivet.BackupEvent{
		Backup: e.Name, Revision: e.Revision, Made: e.Time, Contents: e.Contents}})
	if err != nil {
		fmt.Fprintf(a.Err, "trivet: warning: trivet status does not know of it: %s\n", printable(err.Error()))
	}
}

// recordVerified records that a backup was verified, where this computer has the credential of a cluster.
func (a *app) recordVerified(ctx context.Context, e recovery.Entry) {
	cl, err := a.connect()
	if err != nil {
		fmt.Fprintln(a.Err, "not recorded for trivet status: this computer has no credential of the cluster")
		return
	}
	defer cl.Close()
	a.recordBackup(ctx, cl, e, true)
}
