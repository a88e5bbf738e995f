package cluster

import (
	"fmt"
	"io"
	"net/http"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// snapshotPath is where another member sends the whole database to one that is far behind.
const snapshotPath = "/raft/snapshot"

// spaceInterval is how many bytes of a snapshot are read between two checks of the free space.
const spaceInterval = 1 << 20

// incoming bounds snapshots that other members send by the free space: the reserve is for the log, without which the
// member does not survive. The sender begins again at once, so a snapshot that had no space before is refused unread.
type incoming struct {
	space  *space
	wanted atomic.Int64 // more bytes than these had the snapshot that had no space
}

// handler wraps that of etcd.
func (in *incoming) handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != snapshotPath {
			next.ServeHTTP(w, r)
			return
		}
		if err := in.room(in.wanted.Load()); err != nil {
			http.Error(w, err.Error(), http.StatusInsufficientStorage)
			return
		}
		body := &incomingBody{ReadCloser: r.Body, in: in}
		r.Body = body
		next.ServeHTTP(w, r)
		in.finished(body)
	})
}

// room returns an error unless there is space for some bytes more than the reserve.
func (in *incoming) room(bytes int64) error {
	free, need, err := in.space.reserve.left()
	if err == nil && free < need+bytes {
		err = fmt.Errorf("a snapshot of more than %d MiB beside a reserve of %d MiB: %d MiB free: %w",
			bytes>>20, need>>20, free>>20, unix.ENOSPC)
	}
	return err
}

// finished notes what the snapshot needed, and logs the first of those that have no space.
func (in *incoming) finished(body *incomingBody) {
	if body.full == nil {
		in.wanted.Store(0)
		return
	}
	if in.wanted.Swap(body.read) == 0 {
		in.space.log.Error("this head is behind and cannot catch up: its disk has no space for the store's snapshot",
			"dir", in.space.dir, "error", body.full, "hint", "free some space; it then catches up by itself")
	}
}

// incomingBody is a snapshot as it is received. Read fails with ENOSPC before the reserve is used.
type incomingBody struct {
	io.ReadCloser
	in      *incoming
	read    int64
	checked int64 // what read was when the space was checked
	full    error
}

func (b *incomingBody) Read(p []byte) (int, error) {
	if b.full == nil && (b.read == 0 || b.read-b.checked >= spaceInterval) {
		b.checked = b.read
		b.full = b.in.room(spaceInterval)
	}
	if b.full != nil {
		return 0, b.full
	}
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.checked+spaceInterval-b.read)])
	b.read += int64(n)
	return n, err
}
