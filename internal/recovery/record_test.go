package recovery_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
)

// What the commands report is in the site's status: of each, the newest backup. A report of another cluster, of a
// backup with problems, or without the facts is refused.
func TestBackupIsRecorded(t *testing.T) {
	s := newSite(t, trivet.CurrentRelease)
	made := time.Date(2026, 11, 20, 1, 2, 3, 0, time.UTC)
	report := func(name string, age time.Duration, verified bool, change ...func(*trivet.BackupReport)) error {
		r := trivet.BackupReport{Cluster: "c1", Verified: verified,
			Event: trivet.BackupEvent{Backup: name, Revision: 7, Made: made.Add(-age), Contents: true}}
		for _, c := range change {
			c(&r)
		}
		return s.source.Record(t.Context(), r)
	}
	older := func(r *trivet.BackupReport) { r.Event.Revision = 6 }
	for _, err := range []error{report("b2", 0, false), report("b1", time.Hour, false, older), report("b1", time.Hour, true, older),
		report("b0", -365*24*time.Hour, false, older)} { // by a head whose clock is ahead
		if err != nil {
			t.Fatal(err)
		}
	}
	site, err := s.tables.Sites.Get(trivet.SiteName)
	if err != nil {
		t.Fatal(err)
	}
	b := site.Status.Backups
	if b.Created == nil || b.Created.Backup != "b2" || !b.Created.Contents || b.Created.Time.IsZero() ||
		b.Verified == nil || b.Verified.Backup != "b1" || !b.Verified.Made.Equal(made.Add(-time.Hour)) {
		t.Errorf("recorded %+v, %+v", b.Created, b.Verified)
	}
	for what, c := range map[string]struct {
		change func(*trivet.BackupReport)
		kind   error
	}{
		"another cluster": {func(r *trivet.BackupReport) { r.Cluster = "c2" }, trivet.ErrConflict},
		"no name":         {func(r *trivet.BackupReport) { r.Event.Backup = "" }, trivet.ErrInvalid},
		"a long name":     {func(r *trivet.BackupReport) { r.Event.Backup = strings.Repeat("b", 256) }, trivet.ErrInvalid},
		"no revision":     {func(r *trivet.BackupReport) { r.Event.Revision = 0 }, trivet.ErrInvalid},
		"no time":         {func(r *trivet.BackupReport) { r.Event.Made = time.Time{} }, trivet.ErrInvalid},
		"problems":        {func(r *trivet.BackupReport) { r.Event.Problems = 1 }, trivet.ErrInvalid},
	} {
		if err := report("b3", 0, true, c.change); !errors.Is(err, c.kind) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
