package head_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/testhead"
)

// A head makes a backup by a schedule and proves it in another process: the recovery key opens it. A directory that is
// missing, a head without one, and a backup that cannot be proven each are a state with its reason, and an event.
func TestScheduledBackups(t *testing.T) {
	t.Parallel()
	dir, keyFile := t.TempDir(), filepath.Join(t.TempDir(), "recovery.key")
	image := filepath.Join(t.TempDir(), "image.raw")
	data := filepath.Join(t.TempDir(), "data")
	h := launch(t, data, testhead.NewAddress(), "--backup-dir", dir)
	h.AwaitReady()
	h.Apply(site)
	schedule := func(every string) {
		t.Helper()
		h.Apply(fmt.Sprintf("kind: BackupSchedule\nname: nightly\nspec: {every: %s, keep: 1, blobs: true, directory: lab}\n",
			every))
	}
	await := func(what string, ok func(trivet.BackupScheduleStatus) bool) (st trivet.BackupScheduleStatus) {
		t.Helper()
		h.Await(what, func() error {
			b, err := client.Of[trivet.BackupSchedule](h.Client(testhead.Timeout)).Get(t.Context(), "nightly")
			if err != nil {
				return err
			}
			if st = b.Status; st.Generation != b.Generation || !ok(st) {
				return fmt.Errorf("generation %d, status %+v", b.Generation, st)
			}
			return nil
		})
		return st
	}
	fails := func(reason string) {
		t.Helper()
		await("fails: "+reason, func(st trivet.BackupScheduleStatus) bool {
			return st.State == trivet.BackupFailing && strings.Contains(st.Reason, reason)
		})
	}
	schedule("24h")
	fails("the site has no recovery key (create it: trivet backup key)")
	h.Await("an event reports that", func() error {
		return h.hasEvent("backupschedule/nightly", trivet.ReasonBackupFailing, "no recovery key")
	})
	for path, text := range map[string]string{keyFile: h.MustTrivet("backup", "key", "--yes"),
		image: strings.Repeat("image\x00", 1<<18)} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	h.MustTrivet("image", "import", image, "--name", "i9", "--format", "raw")
	schedule("23h")
	fails(filepath.Join(dir, "lab") + ": not found")
	if err := os.Mkdir(filepath.Join(dir, "lab"), 0o700); err != nil {
		t.Fatal(err)
	}
	schedule("22h")
	first := await("makes a backup", func(st trivet.BackupScheduleStatus) bool { return st.State == trivet.BackupActive })
	h.Await("an event reports that", func() error {
		return h.hasEvent("backupschedule/nightly", trivet.ReasonBackupRecovered, first.Last.Backup)
	})
	out := h.MustTrivet("backup", "verify", filepath.Join(dir, "lab", first.Last.Backup), "--key", keyFile, "--record=false")
	if !strings.Contains(out, "contents of 1 of 1 blobs read") || !strings.Contains(out, "it can be restored") {
		t.Errorf("verified: %s", out)
	}
	if out := h.MustTrivet("status", "--invariant", "backups"); !strings.Contains(out, first.Last.Backup) {
		t.Errorf("the status is %s", out)
	}
	if out := h.MustTrivet("get", "backupschedules"); !strings.Contains(out, "active") {
		t.Errorf("the list is %s", out)
	}

	// Contents that are damaged in the place are copied again by the next attempt, from the head's own copy.
	proof := filepath.Join(data, "proof", "nightly")
	if _, err := os.Stat(proof); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the proof has left files: %v", err)
	}
	lab := filepath.Join(dir, "lab")
	left, err := os.ReadDir(filepath.Join(lab, "blobs"))
	if err != nil || len(left) != 1 {
		t.Fatalf("%v, %v", left, err)
	}
	blob := filepath.Join(lab, "blobs", left[0].Name())
	h.MustTrivet("backup", "create", "--to", lab, "--blobs") // it needs the contents, too
	byHand := listBackups(t, lab)[1]
	if err := os.WriteFile(blob, []byte(strings.Repeat("imagE\x00", 1<<18)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(lab, first.Last.Backup)); err != nil { // so that the contents are read again
		t.Fatal(err)
	}
	schedule("21h")
	fails("the content of blob sha256:" + left[0].Name())
	if _, err := os.Stat(blob); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the damaged content is left: %v", err)
	}
	schedule("20h")
	second := await("makes a backup", func(st trivet.BackupScheduleStatus) bool { return st.State == trivet.BackupActive })
	if names := listBackups(t, lab); !slices.Equal(names, []string{byHand, second.Last.Backup}) {
		t.Errorf("left %q, want %s and %s", names, byHand, second.Last.Backup)
	}
	h.MustTrivet("backup", "verify", filepath.Join(lab, second.Last.Backup), "--key", keyFile, "--record=false")
}

func listBackups(t *testing.T, dir string) (names []string) {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(dir, "*.backup"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range all {
		names = append(names, filepath.Base(path))
	}
	return names
}
