package head_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/testhead"
)

// A head whose disk is full refuses writes for that reason, and serves reads and boots, also after a restart. With
// free space it accepts writes again without a restart.
func TestFullDisk(t *testing.T) {
	disk := mount(t, "size=500m")
	h := startHead(t, filepath.Join(disk, "data"))
	h.Apply(site)
	h.mustServe()
	rest := fill(t, disk)
	h.mustRefuseWrites(disk)
	h.mustRead()
	h.mustBoot()
	h.mustFail(t, []string{"image", "import", write(t, "a.raw", make([]byte, 1<<20)), "--name", "a"}, "full")
	h.Signal(syscall.SIGTERM)
	if status := h.AwaitExit(); status != 0 {
		t.Errorf("exit status %d on a full disk, want 0", status)
	}
	fill(t, disk) // the store's next log, prepared and not used, was removed too
	launch(t, h.Dir, testhead.NewAddress()).
		ExpectFailure("8 MiB needed to start", "the disk is full; free some space, then restart the head")
	if err := os.Truncate(rest, size(t, rest)-100<<20); err != nil {
		t.Fatal(err)
	}
	h = startHead(t, h.Dir) // less is free than the store needs for writes
	h.useOwnEndpoint()
	h.mustRefuseWrites(disk)
	h.mustRead()
	h.mustBoot()
	if err := os.Remove(rest); err != nil {
		t.Fatal(err)
	}
	h.mustServe()
}

func (h *head) mustRefuseWrites(disk string) {
	h.Helper()
	_, err := client.Of[trivet.Machine](h.Client(-1)).Patch(h.Context(), "m1", []byte(`{"labels":{"full":"yes"}}`), 0)
	if !errors.Is(err, trivet.ErrUnavailable) || !strings.Contains(err.Error(), "the disk is full") ||
		!strings.Contains(err.Error(), disk) {
		h.Errorf("a write on a full disk: %v", err)
	}
}

// useOwnEndpoint writes this head's address into the administrator's file, as the head does where it has room.
func (h *head) useOwnEndpoint() {
	h.Helper()
	f, err := client.ReadFile(filepath.Join(h.Dir, "admin.yaml"))
	if err != nil {
		h.Fatal(err)
	}
	for name, c := range f.Contexts {
		c.Endpoints = []string{"https://" + h.Address + ":7480"}
		f.Contexts[name] = c
	}
	h.Admin = filepath.Join(h.TempDir(), "admin.yaml")
	if err := f.Write(h.Admin); err != nil {
		h.Fatal(err)
	}
}

func size(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// fill uses all free space, and returns the file that uses it.
func fill(t *testing.T, dir string) string {
	t.Helper()
	rest, err := os.OpenFile(filepath.Join(dir, "rest"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer rest.Close()
	for err == nil {
		_, err = rest.Write(make([]byte, 64<<10))
	}
	return rest.Name()
}
