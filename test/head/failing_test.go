package head_test

import (
	"strings"
	"syscall"
	"testing"

	"github.com/trivet-project/trivet/internal/testhead"
	"github.com/trivet-project/trivet/test/faultfs"
)

// A head whose disk fails at its start ends at once, wherever the disk fails, and names the file, the disk, and each
// recovery that may fit. With a good disk it starts, and has all that it had.
func TestFailingDiskAtStart(t *testing.T) {
	t.Parallel()
	disk := faultfs.New(t)
	h := newHeadOn(t, disk.Dir())
	if err := h.tryLabel("before"); err != nil {
		t.Fatal(err)
	}
	h.Stop()
	for _, c := range []struct {
		what, file string // what the error names
		faults     faultfs.Faults
	}{
		{"log", ".wal", faultfs.Faults{ReadError: syscall.EIO, Match: "*.wal"}},
		{"database", "snap/db", faultfs.Faults{ReadError: syscall.EIO, Match: "db"}},
		{"a page of the database", "snap/db", faultfs.Faults{ReadError: syscall.EIO, Match: "db", From: 20000, To: 20001}},
		{"keys", "keys/", faultfs.Faults{ReadError: syscall.EIO, Under: "data/keys"}},
		{"identity", "head.json", faultfs.Faults{ReadError: syscall.EIO, Match: "head.json"}},
		{"credential", "admin.yaml", faultfs.Faults{ReadError: syscall.EIO, Match: "admin.yaml"}},
		{"certificate", "peer.pem", faultfs.Faults{ReadError: syscall.EIO, Match: "peer.pem"}},
		{"writes", "", faultfs.Faults{WriteError: syscall.EIO}},
		{"syncs", "", faultfs.Faults{SyncError: syscall.EIO}},
		{"read-only", "", faultfs.Faults{ReadOnly: true}},
	} {
		t.Run(c.what, func(t *testing.T) {
			disk.Set(c.faults)
			text := "input/output error"
			if c.faults.ReadOnly {
				text = "read-only file system"
			}
			failed := launch(t, h.Dir, testhead.NewAddress())
			failed.ExpectFailure("the disk of "+h.Dir, c.file, text, "hint:", "dmesg", "trivet head replace ",
				"trivet recover --from-data-dir", "trivet recover --from-backup")
		})
	}
	disk.Set(faultfs.Faults{})
	h = startHead(t, h.Dir)
	if got := h.label(); got != "before" {
		t.Errorf("the label is %q", got)
	}
	h.mustServe()
}

// A write whose sync has failed is not acknowledged, and ends the head. The kernel takes its bytes for written, and
// shows them to the next start: that one must not build on them, or a loss of power takes what it acknowledges.
func TestFailedSync(t *testing.T) {
	t.Parallel()
	disk := faultfs.New(t)
	h := newHeadOn(t, disk.Dir())
	disk.Set(faultfs.Faults{SyncError: syscall.EIO, SyncErrors: 1, Match: "*.wal"})
	if err := h.tryLabel("lost"); err == nil {
		t.Error("a write was acknowledged whose sync failed")
	}
	h.ExpectFailure("the disk of "+h.Dir, "input/output error", "hint:", "trivet head replace head0")
	h = startHead(t, h.Dir)
	if err := h.tryLabel("after"); err != nil {
		t.Fatal(err)
	}
	h.Kill()
	if err := disk.Cut(nil); err != nil {
		t.Fatal(err)
	}
	h = startHead(t, h.Dir)
	if got := h.label(); got != "after" {
		t.Errorf("%q was acknowledged, and after a loss of power the label is %q", "after", got)
	}
	h.mustServe()
}

// A page of the database that cannot be read any more ends the head while it runs, since it is mapped. The next start
// names the file.
func TestUnreadablePage(t *testing.T) {
	t.Parallel()
	disk := faultfs.New(t)
	h := newHeadOn(t, disk.Dir())
	if err := h.tryLabel("before"); err != nil {
		t.Fatal(err)
	}
	disk.Set(faultfs.Faults{ReadError: syscall.EIO, Match: "db"})
	for range 100 { // until something reads a page
		if h.tryLabel("after") != nil {
			break
		}
	}
	if status := h.AwaitExit(); status <= 0 || !h.Log.Contains("SIGBUS") {
		t.Errorf("exit status %d", status)
	}
	launch(t, h.Dir, testhead.NewAddress()).ExpectFailure("snap/db", "input/output error", "hint:")
	disk.Set(faultfs.Faults{})
	h = startHead(t, h.Dir)
	if got := h.label(); got == "" {
		t.Error("an acknowledged write is lost")
	}
	h.mustServe()
}

// A head whose file system becomes read-only ends, names it, and starts when it can be written again.
func TestReadOnlyDisk(t *testing.T) {
	t.Parallel()
	disk := faultfs.New(t)
	h := newHeadOn(t, disk.Dir())
	if err := h.tryLabel("before"); err != nil {
		t.Fatal(err)
	}
	disk.Set(faultfs.Faults{ReadOnly: true})
	if h.tryLabel("lost") == nil {
		t.Error("a write was acknowledged on a read-only disk")
	}
	h.ExpectFailure("the disk of "+h.Dir, "is read-only", "hint:", "fsck", "trivet head replace head0")
	if lines := strings.Count(h.Log.String(), "\n"); lines > 50 {
		t.Errorf("it has logged %d lines", lines)
	}
	disk.Set(faultfs.Faults{})
	h = startHead(t, h.Dir)
	if got := h.label(); got != "before" {
		t.Errorf("the label is %q", got)
	}
	h.mustServe()
}
