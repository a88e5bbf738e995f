package cluster

import (
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// snapshotPath is where another member sends the whole database to one that is far behind.
const snapshotPath = "/raft/snapshot"

// spaceInterval is how many bytes of a snapshot are read between two checks of the free space.
const spaceInterval = 1 << 20

// incomingPause is how long a snapshot is refused unread after one that had no space, unless space was freed.
const incomingPause = time.Minute

// incoming bounds snapshots that other members send by the free space: the reserve is for the log, without which the
// member does not survive. The sender begins again at once, each time with the whole database.
type incoming struct {
	space *space

	mu      sync.Mutex // guards following
	refused bool       // the last one
	wanted  int64      // more bytes than these had the one that had no space
	until   time.Time  // when the next one is tried with less
}

// handler wraps that of etcd. Where there is no space it closes the connection: a sender of HTTP that gets a response
// before it has sent all closes what it reads from, while it may read.
func (in *incoming) handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != snapshotPath {
			next.ServeHTTP(w, r)
			return
		}
		body := &incomingBody{ReadCloser: r.Body, in: in, full: in.room(in.least())}
		if body.full == nil {
			r.Body = body
			next.ServeHTTP(w, r)
		}
		in.finished(body)
		if body.full != nil {
			panic(http.ErrAbortHandler)
		}
	})
}

// least returns how many bytes the next snapshot has at least.
func (in *incoming) least() int64 {
	in.mu.Lock()
	defer in.mu.Unlock()
	if time.Now().After(in.until) {
		return 0
	}
	return in.wanted
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

// finished notes whether there was space, and logs the first snapshot of those that had none.
func (in *incoming) finished(body *incomingBody) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if body.full != nil && !in.refused {
		in.space.log.Error("this head is behind and cannot catch up: its disk has no space for the store's snapshot",
			"dir", in.space.dir, "error", body.full, "hint", "free some space; it then catches up by itself")
	}
	in.refused = body.full != nil
	if body.full != nil && body.read > 0 {
		in.wanted, in.until = body.read+spaceInterval, time.Now().Add(incomingPause)
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
