package backup

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/apitypes"
	"github.com/trivet-project/trivet/internal/store"
)

// busyLimit is after how many attempts in vain, a minute apart, a place that others use is a failure.
const busyLimit = 30

// update changes the status of a schedule, unless it was deleted. An event is written where do returns its reason.
func (c *Controller) update(ctx context.Context, s *trivet.BackupSchedule,
	do func(is *trivet.BackupSchedule, now time.Time) (reason, message string)) (found bool, err error) {
	now := time.Now().UTC().Truncate(time.Second)
	_, err = c.Tables.Store.Update(ctx, func(tx *store.Tx) error {
		found = false
		is, err := c.Tables.Schedules.In(tx).Get(s.Name)
		if errors.Is(err, trivet.ErrNotFound) || err == nil && is.UID != s.UID {
			return nil
		}
		if err != nil {
			return err
		}
		found = true
		if reason, message := do(is, now); reason != "" {
			is.Status.Events++
			err = c.Tables.Events.In(tx).Put(&trivet.Event{
				Meta: trivet.Meta{Name: trivet.BackupEventName(is.Name, is.Status.Events)},
				Spec: trivet.EventSpec{Subject: "backupschedule/" + is.Name, SubjectUID: is.UID, Seq: is.Status.Events,
					Time: now, Reason: reason, Message: message, Warning: reason == trivet.ReasonBackupFailing,
					Head: c.Head}})
		}
		return errors.Join(err, c.Tables.Schedules.In(tx).Put(is))
	})
	return found, err
}

// begin writes that this head begins an attempt, and returns the record; nil where another head did first, or it was
// changed.
func (c *Controller) begin(ctx context.Context, s *trivet.BackupSchedule) (*trivet.BackupSchedule, error) {
	var mine *trivet.BackupSchedule
	_, err := c.update(ctx, s, func(is *trivet.BackupSchedule, now time.Time) (reason, message string) {
		if mine = nil; is.Revision != s.Revision {
			return "", ""
		}
		st := &is.Status
		st.Generation, st.Head, st.Running = is.Generation, c.Head, true
		st.Failures++
		st.Next = now.Add(pauseAfter(st.Failures, time.Duration(is.Spec.Every)))
		copied := *is
		mine = &copied
		return "", ""
	})
	return mine, err
}

// finish writes what an attempt did.
func (c *Controller) finish(ctx context.Context, s *trivet.BackupSchedule, o outcome) error {
	_, err := c.update(ctx, s, func(is *trivet.BackupSchedule, now time.Time) (reason, message string) {
		st := &is.Status
		was := st.State
		if st.Running = st.Running && st.Head != c.Head; o.made != nil {
			st.Last, st.Failures, st.Next = o.made, 0, now.Add(time.Duration(is.Spec.Every))
		}
		switch {
		case o.busy && st.Failures < busyLimit:
			st.Next = now.Add(time.Minute)
			return "", ""
		case o.failed != nil:
			st.State, st.Reason = trivet.BackupFailing, apitypes.Brief(o.failed.Error())
			if was != st.State {
				return trivet.ReasonBackupFailing, st.Reason
			}
			return "", ""
		}
		st.State, st.Reason = trivet.BackupActive, ""
		if was == trivet.BackupFailing {
			return trivet.ReasonBackupRecovered, fmt.Sprintf("made and proved %s", o.made.Backup)
		}
		return "", ""
	})
	return err
}

// isCurrent reports whether a schedule is as it was when an attempt began, so that backups may be removed by it.
func (c *Controller) isCurrent(s *trivet.BackupSchedule) bool {
	is, err := c.Tables.Schedules.Get(s.Name)
	return err == nil && is.UID == s.UID && is.Generation == s.Generation
}
