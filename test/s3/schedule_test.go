package s3_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/testhead"
)

// A head makes backups in a bucket by a schedule, with the credentials of a secret and none of its environment, and
// proves them. A secret that is wrong, and a server that is not there, each are a state with its reason.
func TestScheduleInABucket(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.importImage("i1")
	schedule := func(endpoint, secret, every string) {
		s.Helper()
		s.head.Apply(fmt.Sprintf("kind: Secret\nname: bucket\nspec: {data: {accessKey: %s, secretKey: %s}}\n---\n"+
			"kind: BackupSchedule\nname: nightly\nspec:\n  every: %s\n  blobs: true\n"+
			"  s3: {location: %q, endpoint: %q, secret: bucket}\n", accessKey, secret, every, location, endpoint))
	}
	await := func(what string, ok func(trivet.BackupScheduleStatus) bool) (st trivet.BackupScheduleStatus) {
		s.Helper()
		s.head.Await(what, func() error {
			b, err := client.Of[trivet.BackupSchedule](s.head.Client(testhead.Timeout)).Get(s.Context(), "nightly")
			if err != nil {
				return err
			}
			if st = b.Status; st.Generation != b.Generation || !ok(st) {
				return fmt.Errorf("generation %d, status %+v", b.Generation, st)
			}
			if strings.Contains(fmt.Sprintf("%+v", b), secretKey) {
				s.Errorf("the secret is in the record: %+v", b)
			}
			return nil
		})
		return st
	}
	schedule(s.url(), "another-secret", "24h")
	await("fails by its secret", func(st trivet.BackupScheduleStatus) bool {
		return st.State == trivet.BackupFailing && strings.Contains(st.Reason, "unauthenticated")
	})
	schedule(s.url(), secretKey, "23h")
	st := await("makes a backup", func(st trivet.BackupScheduleStatus) bool { return st.State == trivet.BackupActive })
	out := s.must("backup", "verify", location+"/"+st.Last.Backup, "--key", s.keyFile)
	if !strings.Contains(out, "contents of 1 of 1 blobs read") || !strings.Contains(out, "it can be restored") {
		s.Errorf("verified: %s", out)
	}
	schedule("http://169.254.169.254", secretKey, "22h")
	await("fails by its server", func(st trivet.BackupScheduleStatus) bool {
		return st.State == trivet.BackupFailing && strings.Contains(st.Reason, "link-local") && st.Last != nil
	})
}
