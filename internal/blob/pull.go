package blob

import (
	"context"
	"slices"
	"sync"

	"github.com/trivet-project/trivet"
)

// pull fetches a blob from other heads, chunk by chunk in the order that readers request them.
type pull struct {
	ref        trivet.BlobRef // complete once it has begun
	digest     Digest
	ctx        context.Context
	stop       context.CancelCauseFunc
	urgent     chan struct{} // closed when a client waits for the blob
	urgentOnce sync.Once

	mu        sync.Mutex
	changed   chan struct{} // guarded by mu, as all below; closed and replaced at each change
	begun     bool          // ref and table are known, the file exists
	table     chunkTable
	have      []bool  // chunks on the disk
	started   []bool  // chunks on the disk or being fetched
	requested []int64 // chunks that readers wait for
	at        int64   // next chunk
	got       int64   // bytes on the disk
	over      bool
	err       error // why it ended; nil: the blob is complete
}

func newPull(ctx context.Context, ref trivet.BlobRef, d Digest) *pull {
	l := &pull{ref: ref, digest: d, urgent: make(chan struct{}), changed: make(chan struct{})}
	l.ctx, l.stop = context.WithCancelCause(ctx)
	return l
}

// setUrgent gives the pull priority over background pulls.
func (l *pull) setUrgent() { l.urgentOnce.Do(func() { close(l.urgent) }) }

// change runs do under the lock and wakes all waiters.
func (l *pull) change(do func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	do()
	close(l.changed)
	l.changed = make(chan struct{})
}

// wait waits until a condition, which is evaluated under the lock, is true, or returns the error that ended the pull.
func (l *pull) wait(ctx context.Context, condition func(*pull) bool) error {
	for {
		l.mu.Lock()
		ok := condition(l)
		over, err, changed := l.over, l.err, l.changed
		l.mu.Unlock()
		switch {
		case over && err != nil:
			return err
		case ok || over:
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

// waitChunk requests a chunk and waits for it.
func (l *pull) waitChunk(ctx context.Context, i int64) error {
	return l.wait(ctx, func(l *pull) bool {
		if !l.have[i] && !l.started[i] && !slices.Contains(l.requested, i) {
			l.requested = append(l.requested, i)
		}
		return l.have[i]
	})
}

// begin sets the complete reference and the chunks that are on the disk.
func (l *pull) begin(ref trivet.BlobRef, table chunkTable, have []bool) {
	l.change(func() {
		l.ref, l.table, l.have, l.started, l.begun = ref, table, have, slices.Clone(have), true
		for i, here := range have {
			if here {
				l.got += chunkLen(int64(i), ref.Bytes)
			}
		}
	})
}

// next returns the chunk to fetch: one that a reader waits for, else the one after the last.
func (l *pull) next() (i int64, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.requested) > 0 && !ok {
		i, l.requested = l.requested[0], l.requested[1:]
		ok = !l.started[i]
	}
	if n := int64(len(l.started)); !ok && n > 0 {
		i = l.at % n
		for range n {
			if ok = !l.started[i]; ok {
				break
			}
			i = (i + 1) % n
		}
	}
	if ok {
		l.started[i], l.at = true, i+1
	}
	return i, ok
}

// setHave records that a chunk is on the disk.
func (l *pull) setHave(i int64) {
	l.change(func() { l.have[i], l.got = true, l.got+chunkLen(i, l.ref.Bytes) })
}

func (l *pull) end(err error) { l.change(func() { l.over, l.err = true, err }) }

func chunkLen(i, size int64) int64 { return min(ChunkBytes, size-i*ChunkBytes) }
