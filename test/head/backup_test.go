package head_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/trivet-project/trivet/internal/testhead"
)

// Backups of a running head, with an image: a command that is killed leaves none, a changed one is refused, and those
// that are made can be restored. Neither the keys nor the recovery key is in the head's log.
func TestBackups(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	dir, keyFile, image := filepath.Join(t.TempDir(), "backups"), filepath.Join(t.TempDir(), "recovery.key"),
		filepath.Join(t.TempDir(), "image.raw")
	key := h.MustTrivet("backup", "key", "--yes")
	for path, text := range map[string]string{keyFile: key, image: strings.Repeat("image\x00", 1<<18)} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	h.MustTrivet("image", "import", image, "--name", "i9", "--format", "raw")
	list := func() (all []struct{ Name, State string }) {
		t.Helper()
		if err := json.Unmarshal([]byte(h.MustTrivet("backup", "list", "--in", dir, "-o", "json")), &all); err != nil {
			t.Fatal(err)
		}
		return all
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for i := range 6 { // killed at several moments; one that was quick enough is complete
		cmd := exec.CommandContext(t.Context(), testhead.Program(t), "backup", "create", "--to", dir, "--blobs")
		cmd.Env = append(cmd.Environ(), "TRIVET_CONFIG="+h.AdminFile())
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(i*i) * 20 * time.Millisecond)
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
		for _, b := range list() {
			if b.State != "complete" {
				t.Errorf("%s is %s after the command was killed", b.Name, b.State)
			}
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err := testhead.Eventually(ctx, func() error { // the head may not have noticed yet that the last one is over
		_, err := h.Trivet("backup", "create", "--to", dir, "--blobs")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	all := list()
	if len(all) == 0 {
		t.Fatal("no backup is listed")
	}
	for _, b := range all {
		out := h.MustTrivet("backup", "verify", filepath.Join(dir, b.Name), "--key", keyFile)
		if !strings.Contains(out, "contents of 1 of 1 blobs read") || !strings.Contains(out, "it can be restored") {
			t.Errorf("verified: %s", out)
		}
	}
	newest := filepath.Join(dir, all[0].Name)
	h.MustTrivet("backup", "prune", "--in", dir, "--keep", "1")
	if left := list(); len(left) != 1 || left[0].Name != all[0].Name {
		t.Errorf("left %+v, want %s", left, all[0].Name)
	}
	if left, err := filepath.Glob(filepath.Join(dir, ".partial*")); err != nil || len(left) > 0 {
		t.Errorf("left %q, %v", left, err)
	}
	changed, err := os.ReadFile(newest)
	if err != nil {
		t.Fatal(err)
	}
	changed[len(changed)-100] ^= 1
	if err := os.WriteFile(newest, changed, 0o600); err != nil {
		t.Fatal(err)
	}
	if r, err := h.Trivet("backup", "verify", newest, "--key", keyFile); err == nil ||
		!strings.Contains(r.All, "it is damaged or was changed") || !strings.Contains(r.All, "hint: ") {
		t.Errorf("a changed backup: %v, %s", err, r.All)
	}
	secret := key[strings.Index(key, "AGE-SECRET-KEY-1"):][:40]
	if h.Log.Contains(secret) || h.Log.Contains("AGE-SECRET-KEY") {
		t.Error("the recovery key is in the head's log")
	}
}
