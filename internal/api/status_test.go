package api_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/store"
)

// A viewer reads the status; an admin's report of a backup is in the site's status, and in the audit log. One of
// another cluster, or with unknown fields, is refused.
func TestStatusAndBackupReports(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	if _, err := h.fleet.Store.Update(t.Context(), func(tx *store.Tx) error {
		return h.fleet.Sites.In(tx).Put(&trivet.Site{Meta: trivet.Meta{Name: trivet.SiteName}})
	}); err != nil {
		t.Fatal(err)
	}
	report, err := h.client(h.account("vi", "viewer")).Status(t.Context())
	if err != nil || report.State != trivet.InvariantHolds {
		t.Errorf("%+v, %v", report, err)
	}
	body := func(cluster string) string {
		return `{"cluster":"` + cluster + `","event":{"backup":"b1.backup","revision":3,"made":"2026-11-20T00:00:00Z",` +
			`"time":"0001-01-01T00:00:00Z","contents":true}}`
	}
	const path = "/v1/sites/site/backups"
	for _, c := range []struct {
		token, path, body string
		want              int
	}{
		{h.admin, path, body("c1"), http.StatusNoContent},
		{h.admin, path, body("other"), http.StatusConflict},
		{h.admin, path, strings.Replace(body("c1"), `"event"`, `"other":1,"event"`, 1), http.StatusUnprocessableEntity},
		{h.admin, "/v1/sites/nope/backups", body("c1"), http.StatusNotFound},
		{h.account("op", "operator"), path, body("c1"), http.StatusForbidden},
	} {
		if status, answer := h.ask(c.token, http.MethodPost, c.path, c.body); status != c.want {
			t.Errorf("%s %s: %d %v, want %d", c.path, c.body, status, answer, c.want)
		}
	}
	site, err := h.fleet.Sites.Get(trivet.SiteName)
	if err != nil || site.Status.Backups.Created == nil || site.Status.Backups.Created.Backup != "b1.backup" {
		t.Errorf("%+v, %v", site, err)
	}
	audit, err := h.client(h.admin).Audit(t.Context(), client.AuditOptions{Kind: "site"})
	if err != nil || len(audit.Items) == 0 {
		t.Errorf("the audit log has %+v, %v", audit, err)
	}
}
