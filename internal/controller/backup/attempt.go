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

// attempt makes a backup, proves it, and removes old ones.
func (c *Controller) attempt(ctx context.Context, s *trivet.BackupSchedule) outcome {
	created, made, err := c.make(ctx, s)
	switch {
	case !created && errors.Is(err, recovery.ErrBusy):
		c.Log.Info("a backup is made later", "schedule", s.Name, "error", err)
		return outcome{failed: err, busy: true}
	case err != nil:
		c.Log.Warn("a schedule of backups fails", "schedule", s.Name, "made", made != nil, "error", err)
	}
	return outcome{made: made, failed: err}
}

// make makes a backup. It returns whether there is one, and the backup where it was proven, also where old ones could
// not be removed then.
func (c *Controller) make(ctx context.Context, s *trivet.BackupSchedule) (created bool, made *trivet.BackupEvent,
	err error) {
	site, err := c.Tables.Sites.Get(trivet.SiteName)
	if err != nil {
		return false, nil, err
	}
	if site.Spec.RecoveryKey == "" {
		return false, nil, &trivet.Error{Op: "back up", Hint: "create it: trivet backup key",
			Err: fmt.Errorf("%w: the site has no recovery key", trivet.ErrInvalid)}
	}
	to, err := c.location(s)
	if err != nil {
		return false, nil, err
	}
	series := recovery.NewSeries(to, s, site, c.ClusterKeys)
	if _, err := series.Before(ctx, s.Spec.KeepOrDefault()); err != nil {
		return false, nil, err
	}
	from, start := c.From(s.UID), time.Now()
	b, err := recovery.Create(ctx, to, from, s.Spec.Blobs, nil)
	if err != nil {
		return false, nil, err
	}
	report := reportOf(b.Entry)
	if err := c.Record(ctx, report); err != nil {
		return true, nil, err
	}
	proof := recovery.Proof{Backup: to, Keys: from.Bundle(), Recipient: site.Spec.RecoveryKey,
		Temp: filepath.Join(c.Temp, s.Name), Reserve: reserve}
	proof.Backup.Path = to.Of(b.Name)
	if err := c.proveAndClean(ctx, s, series, b.Name, proof); err != nil {
		return true, nil, err
	}
	report.Verified = true
	if err := c.Record(ctx, report); err != nil {
		return true, nil, err
	}
	report.Event.Time = time.Now().UTC().Truncate(time.Second)
	c.Log.Info("made a backup and proved it", "schedule", s.Name, "backup", b.Name, "bytes", b.Bytes, "blobs", b.Copied,
		"took", time.Since(start).Round(time.Millisecond))
	if c.isCurrent(s) {
		if _, err := series.Succeeded(ctx, b.Name, s.Spec.KeepOrDefault()); err != nil {
			return true, &report.Event, fmt.Errorf("old backups are not removed: %w", err)
		}
	}
	return true, &report.Event, nil
}

// proveAndClean proves a backup. Where it cannot be restored, damaged contents of blobs are removed, so that the next
// attempt copies them again.
func (c *Controller) proveAndClean(ctx context.Context, s *trivet.BackupSchedule, series *recovery.Series, name string,
	p recovery.Proof) error {
	if last := s.Status.Last; last != nil {
		p.Proven = last.Backup
	}
	damaged, err := c.prove(ctx, p)
	if err != nil && c.isCurrent(s) {
		_, failed := series.Failed(ctx, name, damaged)
		err = errors.Join(err, failed)
	}
	return err
}

// prove returns why a backup cannot be restored, and the digits of the blobs whose contents are damaged.
func (c *Controller) prove(ctx context.Context, p recovery.Proof) (damaged []string, err error) {
	select {
	case c.proving <- struct{}{}:
		defer func() { <-c.proving }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	r, err := c.Prove(ctx, p)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s is not proven to be restorable: %w", filepath.Base(p.Backup.Path), err)
	case r.Found > 0:
		return r.Bad, fmt.Errorf("%w: %s cannot be restored: %s", trivet.ErrInvalid, filepath.Base(p.Backup.Path),
			r.Problems[0])
	}
	return nil, nil
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
			Err: fmt.Errorf("%w: %s has no directory of backups", trivet.ErrInvalid, c.Head)}
	}
	return recovery.Location{Path: filepath.Join(c.Dir, s.Spec.Directory), Existing: true, Reserve: reserve}, nil
}

func (c *Controller) bucket(b *trivet.Bucket) (to recovery.Location, err error) {
	secret, err := c.Tables.Secrets.Get(trivet.Resolve("", b.Secret))
	if err != nil {
		return to, err
	}
	keys, err := bucket.KeysOf(b, secret, c.Unseal)
	if err != nil {
		return to, err
	}
	return recovery.Location{Path: b.Location, S3: bucket.Config{Endpoint: b.Endpoint, Region: b.Region, Keys: keys}}, nil
}
