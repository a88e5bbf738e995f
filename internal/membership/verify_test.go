package membership

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/cluster"
)

// A head that takes longer to read its log than the others may take to respond still verifies its membership: here, it
// was removed.
func TestVerifyWithSlowLog(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	s.record("head1", "", func(rec *trivet.Head) { rec.Status.State = trivet.HeadRemoved })
	l := &Local{cfg: Config{Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)},
		client: s.client(s.certify(auth.Peer{Name: "head1", Role: auth.PeerHead}))}
	l.root.Store(&s.keys.CA.Root)
	l.data.Name, l.data.Peers = "head1", []cluster.Peer{{ID: 2, Name: "head0", URL: "https://" + s.heads[0].addr}}

	// The log is a pipe, which is empty, after a while.
	dir := l.path("store/etcd/member/wal")
	log := filepath.Join(dir, "0000000000000000-0000000000000000.wal")
	if err := errors.Join(os.MkdirAll(dir, 0o700), unix.Mkfifo(log, 0o600)); err != nil {
		t.Fatal(err)
	}
	go func() {
		time.Sleep(verifyTimeout + time.Second)
		if f, err := os.OpenFile(log, os.O_WRONLY, 0); err == nil { // waits for the reader
			f.Close()
		}
	}()
	if final, err := l.verifyOnce(t.Context()); !final || !errors.Is(err, trivet.ErrForbidden) {
		t.Errorf("%t, %v", final, err)
	}
}
