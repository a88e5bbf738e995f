package backup

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/bucket"
	"github.com/trivet-project/trivet/internal/cluster"
	"github.com/trivet-project/trivet/internal/recovery"
)

// reserve is how many bytes a backup and its proof leave free on a disk: it may be that of the store.
const reserve = 4 * cluster.DefaultReserve

// attempt makes a backup, proves it, and removes old ones. Where the proof fails, the last one that was proven is kept
// whatever its age.
func (c *Controller) attempt(ctx context.Context, s *trivet.BackupSchedule) (*trivet.BackupEvent, error) {
	site, err := c.Tables.Sites.Get(trivet.SiteName)
	if err != nil {
		return nil, err
	}
	if site.Spec.RecoveryKey == "" {
		return nil, &trivet.Error{Op: "back up", Hint: "create it: trivet backup key",
			Err: fmt.Errorf("%w: the site has no recovery key", trivet.ErrInvalid)}
	}
	to, err := c.location(s)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	created, err := recovery.Create(ctx, to, c.From, s.Spec.Blobs, nil)
	if err != nil {
		return nil, err
	}
	report := reportOf(created.Entry)
	if err := c.Record(ctx, report); err != nil {
		return nil, err
	}
	file := to
	file.Path = to.Of(created.Name)
	proven := c.prove(ctx, recovery.Proof{Backup: file, Keys: c.Bundle(), Recipient: site.Spec.RecoveryKey,
		New: created.New, Temp: c.Temp, Reserve: reserve})
	if proven == nil {
		report.Verified = true
		proven = c.Record(ctx, report)
	}
	keep := recovery.Keep{Newest: s.Spec.Kept(), Cluster: created.Cluster}
	if last := s.Status.Last; last != nil && proven != nil {
		keep.Name = last.Backup
	}
	pruned, err := recovery.Prune(ctx, to, keep)
	if proven != nil {
		return nil, errors.Join(proven, err)
	}
	if err != nil {
		return nil, err
	}
	report.Event.Time = time.Now().UTC().Truncate(time.Second)
	c.Log.Info("made a backup and proved it", "schedule", s.Name, "backup", created.Name, "bytes", created.Bytes,
		"blobs", created.Copied, "removed", len(pruned.Removed), "took", time.Since(start).Round(time.Millisecond))
	return &report.Event, nil
}

// prove returns why a backup cannot be restored.
func (c *Controller) prove(ctx context.Context, p recovery.Proof) error {
	r, err := c.Prove(ctx, p)
	switch {
	case err != nil:
		return fmt.Errorf("%s is not proven to be restorable: %w", filepath.Base(p.Backup.Path), err)
	case r.Found > 0:
		return fmt.Errorf("%w: %s cannot be restored: %s", trivet.ErrInvalid, filepath.Base(p.Backup.Path), r.Problems[0])
	}
	return nil
}

func reportOf(e recovery.Entry) trivet.BackupReport {
	return trivet.BackupReport{Cluster: e.Cluster, Event: trivet.BackupEvent{Backup: e.Name, Revision: e.Revision,
		Made: e.Time, Contents: e.Contents}}
}

// location returns where the backups of a schedule are.
func (c *Controller) location(s *trivet.BackupSchedule) (recovery.Location, error) {
	if s.Spec.S3 != nil {
		return c.bucket(s.Spec.S3)
	}
	if c.Dir == "" {
		return recovery.Location{}, &trivet.Error{Op: "back up", Hint: "start all heads with --backup-dir DIR, a " +
			"directory on a disk that all of them have mounted",
			Err: fmt.Errorf("%w: this head has no directory of backups", trivet.ErrInvalid)}
	}
	return recovery.Location{Path: filepath.Join(c.Dir, s.Spec.Directory), Existing: true, Reserve: reserve}, nil
}

func (c *Controller) bucket(b *trivet.BackupBucket) (to recovery.Location, err error) {
	secret, err := c.Tables.Secrets.Get(trivet.Resolve("", b.Secret))
	if err != nil {
		return to, err
	}
	keys := &bucket.Keys{CA: b.CA}
	if keys.ID, err = c.Unseal(secret, trivet.BucketAccessKey); err != nil {
		return to, err
	}
	if keys.Secret, err = c.Unseal(secret, trivet.BucketSecretKey); err != nil {
		return to, err
	}
	if keys.ID == "" || keys.Secret == "" {
		return to, &trivet.Error{Op: "back up", Kind: "Secret", Name: b.Secret,
			Err:  fmt.Errorf("%w: it lacks %s or %s", trivet.ErrInvalid, trivet.BucketAccessKey, trivet.BucketSecretKey),
			Hint: "add both values to it"}
	}
	return recovery.Location{Path: b.Location, S3: bucket.Config{Endpoint: b.Endpoint, Region: b.Region, Keys: keys}}, nil
}
