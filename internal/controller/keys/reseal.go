package keys

import (
	"context"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/wait"
)

// pass is one pass over all values. It is lost with its head: another one begins again, and finds what is resealed
// already.
type pass struct {
	active  string // the key that it reseals with
	next    string // where it continues
	read    int64  // values
	found   int    // values under another key
	written int64  // values that were resealed and are not in the record yet
	saved   time.Time
}

// Bounds of the rate at which values are read and encrypted again.
const (
	readPerSecond   = 20_000
	writePerSecond  = 1000
	writeBytesLimit = 2 << 20 // per second
)

const (
	// chunkTime is how long one call reseals.
	chunkTime = time.Second
	// saveInterval is how often the progress is written into the record.
	saveInterval = 5 * time.Second
)

// reseal continues the pass for a while. One that finds nothing to reseal is the last, and then the heads drop the old
// key.
func (c *Controller) reseal(ctx context.Context, k *trivet.Key) (after time.Duration, err error) {
	active, err := c.Contents.Active()
	if err != nil || active != k.Status.Active {
		return pollInterval, err
	}
	if c.pass.active != k.Status.Active {
		c.pass = pass{active: k.Status.Active, saved: c.now()}
	}
	for end := c.now().Add(chunkTime); c.now().Before(end); {
		page, err := c.Contents.Reseal(ctx, c.pass.active, c.pass.next)
		c.pass.count(page)
		if err != nil {
			return 0, err
		}
		if c.pass.next = page.Next; page.Next == "" {
			return again, c.endPass(ctx, page.Revision)
		}
		if wait.Sleep(ctx, pause(page)) != nil {
			return 0, ctx.Err()
		}
	}
	if c.now().Sub(c.pass.saved) < saveInterval {
		return again, nil
	}
	return again, c.save(ctx, false)
}

func (p *pass) count(page store.ResealPage) {
	p.read += int64(page.Read)
	p.found += page.Found
	p.written += int64(page.Written)
}

// pause returns how long a page must take, by the bounds of the rate.
func pause(p store.ResealPage) time.Duration {
	return max(time.Second*time.Duration(p.Read)/readPerSecond, time.Second*time.Duration(p.Found)/writePerSecond,
		time.Second*time.Duration(p.Bytes)/writeBytesLimit)
}

// endPass begins the next pass, or ends the phase after one that found nothing.
func (c *Controller) endPass(ctx context.Context, revision int64) error {
	clean := c.pass.found == 0
	if clean {
		if err := c.Contents.EndReseal(ctx, revision); err != nil {
			return err
		}
	}
	err := c.save(ctx, clean)
	c.pass.read, c.pass.found = 0, 0
	return err
}

// save writes the progress into the record. Where nothing is left to reseal, the next phase begins.
func (c *Controller) save(ctx context.Context, clean bool) error {
	p := c.pass
	err := c.step(ctx, reseal, func(_ *store.Tx, k *trivet.Key, _ string) error {
		if k.Status.Active != p.active {
			return errUnchanged
		}
		k.Status.Resealed += p.written
		if k.Status.Read = p.read; clean {
			k.Status.Phase = trivet.KeyDropping
		}
		return nil
	})
	if err == nil {
		c.pass.written, c.pass.saved = 0, c.now()
	}
	return err
}
