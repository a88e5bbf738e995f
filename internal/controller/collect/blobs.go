package collect

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/blob"
)

// Blobs are the blobs on this head's disk, as [replica.Blobs] has them.
type Blobs interface {
	// Unreferenced returns the blobs that no record refers to.
	Unreferenced() ([]blob.Held, error)
	// Collect removes one, unless it was used after a time, or a record refers to it: that is ErrConflict.
	Collect(d blob.Digest, unusedSince time.Time) error
}

const (
	// keepBlob is how long a blob stays after it was last used, where no record refers to it: it is uploaded before the
	// record is applied that refers to it.
	keepBlob = 7 * 24 * time.Hour
	// confirmBlob is how long a head sees a blob unused before it removes it. The wall clock alone does not decide.
	confirmBlob = time.Hour
	// maxBlobs is how many blobs a sweep removes; the next one removes more.
	maxBlobs = 100
)

// unusedBlob is what was seen of a blob that is due.
type unusedBlob struct {
	used  time.Time // when it was last used; another time: it was used since
	since time.Time // this head has seen it so, by the monotonic clock
}

// blobs removes from this head's disk what no record has referred to and nothing has used for a while. A record that
// is about to refer to a blob has used it on the heads before: see decision 18.
func (c *Controller) blobs(ctx context.Context, now time.Time) error {
	due, err := c.dueBlobs(now)
	if err != nil || len(due) == 0 {
		return err
	}
	if err := c.Tables.Store.Sync(ctx); err != nil { // a copy that is behind decides nothing
		return err
	}
	count, size := 0, int64(0)
	for _, h := range due[:min(len(due), maxBlobs)] {
		switch err := c.Blobs.Collect(h.Digest, now.Add(-keepBlob)); {
		case errors.Is(err, trivet.ErrConflict), errors.Is(err, trivet.ErrNotFound):
			continue
		case err != nil:
			return errors.Join(err, c.reportBlobs(ctx, count, size))
		}
		count, size = count+1, size+h.Bytes
	}
	return c.reportBlobs(ctx, count, size)
}

// dueBlobs returns the blobs that were not used for keepBlob, and seen so for confirmBlob.
func (c *Controller) dueBlobs(now time.Time) (due []blob.Held, err error) {
	held, err := c.Blobs.Unreferenced()
	if err != nil {
		return nil, err
	}
	seen := map[blob.Digest]unusedBlob{}
	for _, h := range held {
		if now.Sub(h.Used) < keepBlob {
			continue
		}
		u, ok := c.unused[h.Digest]
		if !ok || !u.used.Equal(h.Used) {
			u = unusedBlob{h.Used, now}
		}
		if seen[h.Digest] = u; now.Sub(u.since) >= confirmBlob {
			due = append(due, h)
		}
	}
	c.unused = seen
	return due, nil
}

// reportBlobs writes what a sweep removed as this head's event.
func (c *Controller) reportBlobs(ctx context.Context, count int, size int64) error {
	if count == 0 {
		return nil
	}
	return c.Tables.PutHeadEvent(ctx, c.Head, "blobs", trivet.EventSpec{Reason: trivet.ReasonBlobsCollected,
		Message: fmt.Sprintf("removed %d blobs of %d MiB that no record refers to", count, size>>20)})
}
