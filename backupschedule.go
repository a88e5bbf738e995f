package trivet

import (
	"cmp"
	"regexp"
	"time"
)

// BackupSchedule makes backups of the cluster at intervals, proves that they can be restored, and removes old ones.
type BackupSchedule struct {
	Meta
	Spec   BackupScheduleSpec   `json:"spec"`
	Status BackupScheduleStatus `json:"status,omitzero"`
}

// BackupScheduleSpec is when backups are made, and where they are.
type BackupScheduleSpec struct {
	// Every is the time from one backup to the next, 15 minutes to 31 days.
	Every Duration `json:"every"`
	// Keep is how many backups are kept: older ones are removed after each new one.
	Keep int `json:"keep,omitempty"`
	// Suspend: no backups are made. A recovery of the cluster sets it.
	Suspend bool `json:"suspend,omitempty"`
	// Blobs saves the contents of images and platforms, too.
	Blobs bool `json:"blobs,omitempty"`
	// Directory is the name of a directory below that of --backup-dir of the heads, which should be on a disk that all
	// heads have mounted. It must exist. A schedule has this or s3.
	Directory string `json:"directory,omitempty"`
	// S3 is an S3 bucket.
	S3 *Bucket `json:"s3,omitempty"`
}

// BackupScheduleState is the state of a schedule.
type BackupScheduleState string

// The states of a schedule.
const (
	BackupActive  BackupScheduleState = "active"  // the last backup was made, and proven to be restorable
	BackupFailing BackupScheduleState = "failing" // the last attempt failed; it is tried again
)

// BackupScheduleStatus is what the last attempt did.
type BackupScheduleStatus struct {
	State  BackupScheduleState `json:"state,omitempty"`
	Reason string              `json:"reason,omitempty"` // why it is failing
	// Generation is the spec's that the state is of. A change of the spec makes a backup at once.
	Generation int64        `json:"generation,omitempty"`
	Head       string       `json:"head,omitempty"`     // the head that made the last attempt
	Running    bool         `json:"running,omitempty"`  // that attempt has not ended, unless the head is lost
	Last       *BackupEvent `json:"last,omitempty"`     // the last backup that was made and proven
	Next       time.Time    `json:"next,omitzero"`      // when the next attempt is due
	Failures   int          `json:"failures,omitempty"` // attempts since the last success, with the one that is running
	Events     int64        `json:"events,omitempty"`   // counts the events of this record
}

// BackupScheduleRelease is the release that added schedules of backups.
const BackupScheduleRelease = "0.3.1"

// Bounds of schedules of backups.
const (
	minBackupEvery = 15 * time.Minute
	maxBackupEvery = 31 * 24 * time.Hour
	maxBackupsKept = 10_000
	// MaxBackupSchedules bounds the schedules of a site: a head makes one backup at a time.
	MaxBackupSchedules = 16
	// maxScheduleName leaves room for the names of the schedule's events.
	maxScheduleName = 63
)

// KeepOrDefault returns Keep, or its default.
func (s *BackupScheduleSpec) KeepOrDefault() int { return cmp.Or(s.Keep, 14) }

var directoryForm = regexp.MustCompile(`^[A-Za-z0-9][-A-Za-z0-9_.]*$`)

// Validate checks a schedule by itself.
func (b *BackupSchedule) Validate() error {
	var p problems
	p.name(b.Name)
	p.bytes("name", b.Name, maxScheduleName)
	if every := time.Duration(b.Spec.Every); every < minBackupEvery || every > maxBackupEvery {
		p.add("spec.every", "is %s; it must be from 15m to 744h", b.Spec.Every)
	}
	if b.Spec.Keep < 0 || b.Spec.Keep > maxBackupsKept {
		p.add("spec.keep", "is %d; it must be from 1 to %d, or missing: %d", b.Spec.Keep, maxBackupsKept,
			new(BackupScheduleSpec).KeepOrDefault())
	}
	p.bytes("spec.directory", b.Spec.Directory, 64)
	switch dir, s3 := b.Spec.Directory, b.Spec.S3; {
	case dir != "" && s3 != nil:
		p.add("spec.s3", "excludes spec.directory: use a schedule for each")
	case s3 != nil:
		s3.validate(&p, "spec.s3")
	case dir == "":
		p.add("spec.directory", "is missing, and spec.s3, too: where are the backups written to?")
	case !directoryForm.MatchString(dir):
		p.add("spec.directory", "%.80q must be the name of a directory below that of --backup-dir, without a slash", dir)
	}
	return p.err()
}
