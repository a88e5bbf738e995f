package recovery

import (
	"context"
	"fmt"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/store"
)

// maxBackupName bounds the name of a backup that is recorded, in bytes.
const maxBackupName = 255

// Record records in the site's status that a backup was created or verified. An older one than the recorded one
// changes nothing.
func (s *Source) Record(ctx context.Context, report trivet.BackupReport) error {
	e := report.Event
	switch own := s.cfg.Keys.CA.Cluster(); {
	case report.Cluster != own:
		return &trivet.Error{Op: "record backup", Hint: "select the context of that cluster by --context",
			Err: fmt.Errorf("%w: it is of cluster %.40q, and this is %s", trivet.ErrConflict, report.Cluster, own)}
	case e.Backup == "" || len(e.Backup) > maxBackupName:
		return &trivet.FieldError{Field: "event.backup", Problem: fmt.Sprintf("has %d bytes; 1 to %d", len(e.Backup),
			maxBackupName)}
	case e.Revision <= 0:
		return &trivet.FieldError{Field: "event.revision", Problem: "must be above 0"}
	case e.Made.IsZero():
		return &trivet.FieldError{Field: "event.made", Problem: "is missing"}
	case report.Verified && e.Problems != 0:
		return &trivet.FieldError{Field: "event.problems", Problem: "must be 0: a backup with problems is not verified"}
	}
	e.Time = time.Now().UTC().Truncate(time.Second)
	_, err := s.cfg.Tables.Store.Update(ctx, func(tx *store.Tx) error {
		site, err := s.cfg.Tables.Sites.In(tx).Get(trivet.SiteName)
		if err != nil {
			return err
		}
		last := &site.Status.Backups.Created
		if report.Verified {
			last = &site.Status.Backups.Verified
		}
		if *last != nil && (*last).Revision > e.Revision {
			return nil
		}
		*last = &e
		return s.cfg.Tables.Sites.In(tx).Put(site)
	})
	return err
}
