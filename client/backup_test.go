package client_test

import (
	"io"
	"net/http"
	"testing"
	"time"
)

// A head copies its store before it sends a backup, which takes longer than any other response.
func TestBackupMayTakeItsTime(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	h := c.head(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/sites/site/backup" {
			time.Sleep(11 * time.Second) // above the limit of other calls
			w.Write([]byte("file"))
		}
	})
	body, err := c.client(-1, h.URL).Backup(t.Context(), true)
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	if text, err := io.ReadAll(body); string(text) != "file" || err != nil {
		t.Errorf("received %q, %v", text, err)
	}
}
