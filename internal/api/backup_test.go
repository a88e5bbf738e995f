package api_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/archive"
	"github.com/trivet-project/trivet/internal/recovery"
)

// A backup is one response, with its size; before it is sent, the audit log says who requested it.
func TestBackup(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	_, recipient, err := recovery.NewKey("c1", "", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	const path = "/v1/sites/site/backup"
	put(h, h.fleet.Sites, &trivet.Site{Meta: trivet.Meta{Name: trivet.SiteName},
		Status: trivet.SiteStatus{ClusterVersion: trivet.CurrentRelease}})
	if status, body := h.ask(h.admin, "POST", path, ""); status != http.StatusConflict {
		t.Errorf("without a recovery key: %d, %v", status, body)
	}
	for value, want := range map[string]int{"age1": 400, recipient[:61] + "0": 400, recipient: 200} {
		status, body := h.ask(h.admin, "PATCH", "/v1/sites/site", `{"spec":{"recoveryKey":"`+value+`"}}`,
			"Content-Type: "+trivet.MediaMergePatch)
		if status != want && (want == 200 || status < 400 || status >= 500) {
			t.Errorf("recovery key %q: %d, %v; want %d", value, status, body, want)
		}
	}
	resp := h.do(h.admin, "POST", path, `{"contents":true}`)
	defer resp.Body.Close()
	var file bytes.Buffer
	m, err := archive.Copy(resp.Body, func(*archive.Manifest, int64) (io.Writer, error) { return &file, nil })
	if err != nil || !m.Contents || m.Recipient != recipient || resp.ContentLength != int64(file.Len()) {
		t.Fatalf("a backup of %d bytes, %d announced: %+v, %v", file.Len(), resp.ContentLength, m, err)
	}
	entries, err := h.fleet.Store.Cold(t.Context(), "audit", "", 10)
	if err != nil || len(entries) == 0 || !bytes.Contains(entries[0].Doc, []byte(`"action":"backup"`)) {
		t.Errorf("the audit log: %+v, %v", entries, err)
	}
	for name, body := range map[string]string{"none": "{}", "site": `{"x":1}`} {
		if status, _ := h.ask(h.admin, "POST", "/v1/sites/"+name+"/backup", body); status < 400 || status >= 500 {
			t.Errorf("%s of %s: %d", body, name, status)
		}
	}
}

// A site has a bounded number of schedules of backups, of admins only. The secret of a bucket exists, and is kept.
func TestSchedulesAreAdmitted(t *testing.T) {
	h, _ := newNotifiers(t, "https://receiver.example.com")
	schedules := client.Of[trivet.BackupSchedule](h.client(h.admin))
	b := &trivet.BackupSchedule{Meta: trivet.Meta{Name: "nightly"}, Spec: trivet.BackupScheduleSpec{
		Every: trivet.Duration(time.Hour), S3: &trivet.Bucket{Location: "s3://backups", Secret: "none"}}}
	if _, err := schedules.Create(t.Context(), b); err == nil || !strings.Contains(err.Error(), "none") {
		t.Errorf("a secret that does not exist: %v", err)
	}
	b.Spec.S3.Secret = "hook"
	for i := range trivet.MaxBackupSchedules {
		b.Name = fmt.Sprint("b", i)
		must(schedules.Create(t.Context(), b))(t)
	}
	b.Name = "more"
	if _, err := schedules.Create(t.Context(), b); !errors.Is(err, trivet.ErrConflict) ||
		!strings.Contains(err.Error(), "at most 16") {
		t.Errorf("one too many: %v", err)
	}
	secrets := h.client(h.admin).Kind(must(trivet.LookupKind("secrets"))(t))
	if err := secrets.Force(true).Delete(t.Context(), "hook"); !errors.Is(err, trivet.ErrConflict) {
		t.Errorf("its secret is deleted: %v", err)
	}
}
