package trivet_test

import (
	"strings"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
)

func TestBackupScheduleIsValidated(t *testing.T) {
	inBucket := func() trivet.BackupSchedule {
		return trivet.BackupSchedule{Meta: trivet.Meta{Name: "nightly"}, Spec: trivet.BackupScheduleSpec{
			Every: trivet.Duration(24 * time.Hour), S3: &trivet.Bucket{Location: "s3://backups/site1",
				Endpoint: "https://s3.example.com:9000/", Region: "eu-1", Secret: "ops/bucket"}}}
	}
	good := inBucket()
	if err := good.Validate(); err != nil || good.Spec.KeepOrDefault() != 14 {
		t.Errorf("%v, kept %d", err, good.Spec.KeepOrDefault())
	}
	for _, test := range []struct {
		change func(b *trivet.BackupSchedule)
		want   string
	}{
		{func(b *trivet.BackupSchedule) { b.Name = strings.Repeat("n", 64) }, "at most 63"},
		{func(b *trivet.BackupSchedule) { b.Spec.Every = 0 }, "it must be from 15m to 744h"},
		{func(b *trivet.BackupSchedule) { b.Spec.Every = trivet.Duration(745 * time.Hour) }, "from 15m to 744h"},
		{func(b *trivet.BackupSchedule) { b.Spec.Keep = -1 }, "spec.keep is -1"},
		{func(b *trivet.BackupSchedule) { b.Spec.Keep = 10_001 }, "from 1 to 10000"},
		{func(b *trivet.BackupSchedule) { b.Spec.S3 = nil }, "where are the backups written to?"},
		{func(b *trivet.BackupSchedule) { b.Spec.Directory = "d" }, "spec.s3 excludes spec.directory"},
		{func(b *trivet.BackupSchedule) { b.Spec.S3, b.Spec.Directory = nil, "../etc" }, "without a slash"},
		{func(b *trivet.BackupSchedule) { b.Spec.S3, b.Spec.Directory = nil, ".." }, "without a slash"},
		{func(b *trivet.BackupSchedule) { b.Spec.S3, b.Spec.Directory = nil, "/srv" }, "without a slash"},
		{func(b *trivet.BackupSchedule) { b.Spec.S3.Location = "" }, "spec.s3.location is missing"},
		{func(b *trivet.BackupSchedule) { b.Spec.S3.Location = "https://backups/" }, "must be s3://BUCKET/PREFIX"},
		{func(b *trivet.BackupSchedule) { b.Spec.S3.Endpoint = "s3.example.com" }, "must begin with https://"},
		{func(b *trivet.BackupSchedule) { b.Spec.S3.Endpoint = "https://a:b@s3.example.com" }, "has a user or password"},
		{func(b *trivet.BackupSchedule) { b.Spec.S3.Endpoint = "https://s3.example.com/a" }, "must end after the host"},
		{func(b *trivet.BackupSchedule) { b.Spec.S3.Region = "a b" }, "letters, digits and hyphens"},
		{func(b *trivet.BackupSchedule) { b.Spec.S3.Secret = "" }, "spec.s3.secret is missing"},
		{func(b *trivet.BackupSchedule) { b.Spec.S3.CA = "x" }, "no certificate in PEM"},
	} {
		b := inBucket()
		test.change(&b)
		if err := b.Validate(); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%+v: %v; want %q", b, err, test.want)
		}
	}
}
