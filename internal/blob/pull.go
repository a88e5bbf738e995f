package blob

import (
	"context"
	"slices"
	"sync"

	"github.com/trivet-project/trivet"
)

// pull is a blob on its way from other heads, chunk by chunk in the order that readers want them.
type pull struct {
	ref    trivet.BlobRef // complete once it has begun
	digest Digest
	ctx    context.Context
	stop   context.CancelCauseFunc
	urgent chan struct{} // closed when somebody waits
	hurry  sync.Once

	mu      sync.Mutex
	changed chan struct{} // closed, and made anew, at each change of what follows; guarded by mu
	begun   bool          // guarded by mu; ref and table are known, the file is there
	table   chunkTable    // guarded by mu
	have    []bool        // guarded by mu; chunks that are on the disk
	taken   []bool        // guarded by mu; and those that are on the way
	asked   []int64       // guarded by mu; chunks that readers wait for
	at      int64         // guarded by mu; chunk to go on with
	got     int64         // guarded by mu; bytes on the disk
	over    bool          // guarded by mu
	err     error         // guarded by mu; why it is over, nil: the blob is here
}

func newPull(ctx context.Context, ref trivet.BlobRef, d Digest) *pull {
	l := &pull{ref: ref, digest: d, urgent: make(chan struct{}), changed: make(chan struct{})}
	l.ctx, l.stop = context.WithCancelCause(ctx)
	return l
}

// hasten lets it go before what nobody waits for.
func (l *pull) hasten() { l.hurry.Do(func() { close(l.urgent) }) }

// change does something under the lock and wakes all who wait.
func (l *pull) change(do func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	do()
	close(l.changed)
	l.changed = make(chan struct{})
}

// wait returns when something has come true of the pull, which is looked at under the lock, or with the error that ended it.
func (l *pull) wait(ctx context.Context, come func(*pull) bool) error {
	for {
		l.mu.Lock()
		holds := come(l)
		over, err, changed := l.over, l.err, l.changed
		l.mu.Unlock()
		switch {
		case over && err != nil:
			return err
		case holds || over:
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (l *pull) isOver() bool   { return l.over }
func (l *pull) hasBegun() bool { return l.begun }

// want waits for a chunk, which comes before what nobody waits for.
func (l *pull) want(ctx context.Context, i int64) error {
	return l.wait(ctx, func(l *pull) bool {
		if !l.have[i] && !l.taken[i] && !slices.Contains(l.asked, i) {
			l.asked = append(l.asked, i)
		}
		return l.have[i]
	})
}

// begin tells what is known of the blob, and which chunks of it are here.
func (l *pull) begin(ref trivet.BlobRef, table chunkTable, have []bool) {
	l.change(func() {
		l.ref, l.table, l.have, l.taken, l.begun = ref, table, have, slices.Clone(have), true
		for i, here := range have {
			if here {
				l.got += chunkLen(int64(i), ref.Bytes)
			}
		}
	})
}

// next takes the chunk to be fetched: one that a reader waits for, else what follows the last one.
func (l *pull) next() (i int64, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.asked) > 0 && !ok {
		i, l.asked = l.asked[0], l.asked[1:]
		ok = !l.taken[i]
	}
	if n := int64(len(l.taken)); !ok && n > 0 {
		i = l.at % n
		for range n {
			if ok = !l.taken[i]; ok {
				break
			}
			i = (i + 1) % n
		}
	}
	if ok {
		l.taken[i], l.at = true, i+1
	}
	return i, ok
}

// keep tells that a chunk is on the disk.
func (l *pull) keep(i int64) {
	l.change(func() { l.have[i], l.got = true, l.got+chunkLen(i, l.ref.Bytes) })
}

func (l *pull) end(err error) { l.change(func() { l.over, l.err = true, err }) }

func chunkLen(i, size int64) int64 { return min(ChunkBytes, size-i*ChunkBytes) }
