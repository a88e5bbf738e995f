package cluster

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"golang.org/x/sys/unix"
)

// A snapshot is read up to the reserve, and the one that is sent again is refused unread, unless space was freed.
func TestSnapshotIsRefusedUnread(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=32m"); err != nil {
		t.Fatalf("mounting a small file system needs root: run the tests by 'make test' as root: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	r := newReserve(dir, 24<<20) // 8 MiB are left for a snapshot
	in := &incoming{space: &space{dir: dir, reserve: r, log: slog.New(slog.DiscardHandler)}}
	h := in.handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.ReadAll(r.Body) }))
	send := func(path string) (read int64, aborted bool) {
		body := &io.LimitedReader{R: zeros{}, N: 4 << 20}
		defer func() { read, aborted = 4<<20-body.N, recover() != nil }()
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, body))
		return 0, false
	}
	expect := func(what, path string, wantRead int64, wantAborted bool) {
		t.Helper()
		if read, aborted := send(path); read != wantRead || aborted != wantAborted {
			t.Errorf("%s: %d bytes are read, want %d; aborted: %v", what, read, wantRead, aborted)
		}
	}
	expect("with space", snapshotPath, 4<<20, false)
	in.wanted, in.until = 9<<20, in.until.AddDate(9999, 0, 0)
	expect("after one that needed more", snapshotPath, 0, true)
	expect("a message", "/raft", 4<<20, false)
	r.size = 20 << 20 // as if 4 MiB were freed
	expect("with more space", snapshotPath, 4<<20, false)
	in.wanted, r.size = 0, 32<<20
	expect("without any space", snapshotPath, 0, true)
}

// zeros is without an end.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }
