package heads_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// Each of three heads makes backups that can be restored, also when another one is lost; without a quorum there is
// none, and no head makes an old one.
func TestBackupOfAnyHead(t *testing.T) {
	t.Parallel()
	h0, l := startWithLedger(t)
	h1, h2 := h0.join("head1"), h0.join("head2")
	l.cl = h0.client(h0, h1, h2)
	keyFile, dir := filepath.Join(t.TempDir(), "recovery.key"), filepath.Join(t.TempDir(), "backups")
	if err := os.WriteFile(keyFile, []byte(h1.MustTrivet("backup", "key", "--yes")), 0o600); err != nil {
		t.Fatal(err)
	}
	backup := func(h *head) {
		t.Helper()
		l.write()
		var created struct {
			Name     string
			Revision int64
		}
		decode(t, h.MustTrivet("backup", "create", "--to", dir, "-o", "json"), &created)
		var report struct {
			Found    int
			Problems []string
			Records  map[string]int
			Head     struct{ Name string }
		}
		decode(t, h.MustTrivet("backup", "verify", filepath.Join(dir, created.Name), "--key", keyFile, "-o", "json"),
			&report)
		if report.Found != 0 || report.Records["head"] != 3 || created.Revision == 0 || report.Head.Name == "" {
			t.Errorf("%s made %+v: %+v", h.Name, created, report)
		}
	}
	for _, h := range []*head{h0, h1, h2} {
		backup(h)
	}
	h0.Kill()
	backup(h1)
	h1.Kill()
	if r, err := h2.Trivet("backup", "create", "--to", dir); err == nil {
		t.Errorf("a backup without a quorum: %s", r.All)
	}
	var all []struct{ State string }
	decode(t, h2.MustTrivet("backup", "list", "--in", dir, "-o", "json"), &all)
	if len(all) != 4 {
		t.Errorf("%d backups are listed, want 4", len(all))
	}
}

func decode(t *testing.T, text string, into any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), into); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
}
