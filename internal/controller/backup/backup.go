// Package backup makes the backups of schedules, and proves that they can be restored.
//
// A backup is made by the head that ranks first for its schedule: reading, copying and proving it are in the background
// of that head, one backup at a time. Two heads may make one at once where they disagree about which of them are
// working; the lock of the place lets one of them wait. What was done is written once at the end of an attempt, so that
// a head which is lost in the middle leaves a schedule that is due, and a partial backup, which the next one removes.
package backup

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/apitypes"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/reconcile"
	"github.com/trivet-project/trivet/internal/recovery"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
)

// Declaration is what the controller reads and writes.
var Declaration = reconcile.Declaration{
	Name:    "backup",
	Reads:   []trivet.Kind{"Secret"},
	Writes:  []trivet.Kind{"BackupSchedule", "Site", "Event"},
	Watches: []trivet.Kind{"BackupSchedule"},
	Workers: 1, // a head makes one backup at a time
}

// Config is what the controller needs.
type Config struct {
	Tables *state.Tables
	Head   string // the name of this head
	// Rank returns how many heads go before this one for a key.
	Rank func(key string) int
	// Dir is the directory that those of schedules are below; empty: this head has none.
	Dir string
	// From is this head, as a source of backups.
	From recovery.Cluster
	// Bundle returns the keys of the cluster, and Prove proves a backup by them, with Temp as directory of its own.
	Bundle func() auth.Bundle
	Prove  func(context.Context, recovery.Proof) (recovery.Report, error)
	Temp   string
	// Record records in the site's status that a backup was made or proven.
	Record  func(context.Context, trivet.BackupReport) error
	Unseal  func(secret *trivet.Secret, key string) (string, error)
	Log     *slog.Logger
	Metrics prometheus.Registerer // nil: none
}

// Controller implements [reconcile.Controller]. Its keys are names of schedules.
type Controller struct{ Config }

// New returns the controller.
func New(cfg Config) *Controller {
	if cfg.Metrics != nil {
		cfg.Metrics.MustRegister(collector{cfg.Tables})
	}
	return &Controller{cfg}
}

// Declaration implements [reconcile.Controller].
func (c *Controller) Declaration() reconcile.Declaration { return Declaration }

// Keys implements [reconcile.Controller].
func (c *Controller) Keys() []string { return c.Tables.Schedules.Names() }

// Affected implements [reconcile.Controller].
func (c *Controller) Affected(e *store.Event) []string { return []string{e.Name} }

const (
	// interval is how often a head looks which schedules it makes the backups of.
	interval = 30 * time.Second
	// maxTime bounds an attempt.
	maxTime = 12 * time.Hour
)

// Reconcile implements [reconcile.Controller].
func (c *Controller) Reconcile(ctx context.Context, name string) (after time.Duration, err error) {
	s, err := c.Tables.Schedules.Get(name)
	if errors.Is(err, trivet.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	if wait := waitOf(s, time.Now()); wait > 0 || c.Rank(name) > 0 {
		return min(max(wait, time.Second), interval), nil
	}
	limited, cancel := context.WithTimeout(ctx, maxTime)
	defer cancel()
	made, failed := c.attempt(limited, s)
	switch {
	case ctx.Err() != nil:
		return 0, ctx.Err()
	case errors.Is(failed, trivet.ErrConflict): // by another head, or an operator
		c.Log.Info("a backup is made later", "schedule", name, "error", failed)
		return time.Minute, nil
	case failed != nil:
		c.Log.Warn("a backup was not made", "schedule", name, "error", failed)
	}
	return interval, c.save(ctx, s, made, failed)
}

// waitOf returns in how long a backup is due: at once for a new schedule, and after each change of its spec. A time
// that is further away than one interval is that of a clock which was wrong.
func waitOf(s *trivet.BackupSchedule, now time.Time) time.Duration {
	wait := s.Status.Next.Sub(now)
	if s.Status.Generation != s.Generation || wait > time.Duration(s.Spec.Every) {
		return 0
	}
	return wait
}

// The pauses after attempts that failed.
const (
	minPause = time.Minute
	maxPause = time.Hour
)

func pauseAfter(failures int, every time.Duration) time.Duration {
	return min(minPause<<min(failures-1, 10), maxPause, every)
}

// save writes what an attempt did, and an event where that is news. Where the schedule was changed meanwhile, the next
// attempt is due at once.
func (c *Controller) save(ctx context.Context, s *trivet.BackupSchedule, made *trivet.BackupEvent, failed error) error {
	now := time.Now().UTC().Truncate(time.Second)
	_, err := c.Tables.Store.Update(ctx, func(tx *store.Tx) error {
		is, err := c.Tables.Schedules.In(tx).Get(s.Name)
		if errors.Is(err, trivet.ErrNotFound) || err == nil && is.UID != s.UID {
			return nil // it was deleted
		}
		if err != nil {
			return err
		}
		st := &is.Status
		st.Generation, st.Head = s.Generation, c.Head
		e := &trivet.Event{Spec: trivet.EventSpec{Subject: "backupschedule/" + is.Name, SubjectUID: is.UID, Time: now,
			Head: c.Head}}
		if failed != nil {
			st.Failures++
			st.State, st.Reason = trivet.BackupFailing, apitypes.Brief(failed.Error())
			st.Next = now.Add(pauseAfter(st.Failures, time.Duration(is.Spec.Every)))
			if st.Failures == 1 {
				e.Spec.Reason, e.Spec.Message, e.Spec.Warning = trivet.ReasonBackupFailing, st.Reason, true
			}
		} else {
			if st.Failures > 0 {
				e.Spec.Reason, e.Spec.Message = trivet.ReasonBackupRecovered,
					fmt.Sprintf("made and proven %s, after %d attempts that failed", made.Backup, st.Failures)
			}
			st.State, st.Reason, st.Failures, st.Last = trivet.BackupActive, "", 0, made
			st.Next = now.Add(time.Duration(is.Spec.Every))
		}
		if e.Spec.Reason != "" {
			st.Events++
			e.Name, e.Spec.Seq = trivet.BackupEventName(is.Name, st.Events), st.Events
			if err := c.Tables.Events.In(tx).Put(e); err != nil {
				return err
			}
		}
		return c.Tables.Schedules.In(tx).Put(is)
	})
	return err
}
