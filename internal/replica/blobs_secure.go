package replica

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/blob"
)

// Secure returns when two full heads hold a blob on stable storage, or this one where no other is a member. It must
// be called before a blob is acknowledged. It fails with [trivet.ErrUnavailable] where no second head can get the
// blob in time; the blob stays on this head, and Secure may be called again.
func (b *Blobs) Secure(ctx context.Context, ref trivet.BlobRef) error {
	d, err := blob.ParseDigest(ref.Digest)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, b.SecureTimeout)
	defer cancel()
	members := slices.DeleteFunc(b.otherHeads(), func(h otherHead) bool { return !h.member })
	if !b.Store.Has(d) { // after the pull this head and its source hold it
		return b.puller.PullUrgent(ctx, ref)
	}
	ref, err = b.Store.Stat(d)
	if err != nil || len(members) == 0 {
		return err
	}
	var holdings []holding
	held := false
	b.query(ctx, members, statPath, d, func(h holding) bool {
		holdings = append(holdings, h)
		held = h.Ref != nil && *h.Ref == ref
		return held
	})
	if held {
		return nil
	}
	slices.SortStableFunc(holdings, byProgress)
	return b.replicate(ctx, ref, holdings)
}

// byProgress orders the head that holds most first, and those that do not respond last.
func byProgress(x, y holding) int {
	return cmp.Or(cmp.Compare(btoi(x.err != nil), btoi(y.err != nil)), cmp.Compare(y.Bytes, x.Bytes))
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// replicate makes one of these heads after the other pull the blob, until one holds it or all have stalled.
func (b *Blobs) replicate(ctx context.Context, ref trivet.BlobRef, heads []holding) error {
	for last := time.Now(); ; {
		var problems error
		for i := range heads {
			h := &heads[i]
			progressed, err := b.push(ctx, ref, h)
			if err == nil {
				return nil
			}
			if progressed {
				last = time.Now()
			}
			problems = errors.Join(problems, fmt.Errorf("%s has %d of %d bytes: %w", h.name, h.Bytes, ref.Bytes, err))
		}
		if ctx.Err() == nil && time.Since(last) < b.StallTimeout {
			select {
			case <-time.After(b.StallTimeout / 20):
				continue
			case <-ctx.Done():
			}
		}
		return &trivet.Error{Op: "store blob", Name: ref.Digest,
			Err: fmt.Errorf("%w: only this head holds it, and two must: %w", trivet.ErrUnavailable, problems),
			Hint: "the blob stays on this head: try again when another head is up; remove a head that is lost with " +
				"'trivet head remove'"}
	}
}

// push makes a head pull a blob, and waits as long as it makes progress.
func (b *Blobs) push(ctx context.Context, ref trivet.BlobRef, h *holding) (progressed bool, err error) {
	for last := time.Now(); ; {
		var now holdingResponse
		if err := b.pushOnce(ctx, ref, h.url, &now); err != nil {
			return progressed, err
		}
		if now.Bytes > h.Bytes {
			h.Bytes, last, progressed = now.Bytes, time.Now(), true
		}
		switch {
		case now.Ref != nil && *now.Ref == ref:
			return true, nil
		case now.Ref != nil:
			return progressed, fmt.Errorf("%w: it holds %+v", trivet.ErrInvalid, *now.Ref)
		case now.Problem != "":
			return progressed, fmt.Errorf("%w: %s", trivet.ErrUnavailable, now.Problem)
		case ctx.Err() != nil:
			return progressed, fmt.Errorf("%w: %w", trivet.ErrUnavailable, context.Cause(ctx))
		case time.Since(last) > b.StallTimeout/2:
			return progressed, fmt.Errorf("%w: no progress for %s", trivet.ErrUnavailable, b.StallTimeout/2)
		}
	}
}

func (b *Blobs) pushOnce(ctx context.Context, ref trivet.BlobRef, url string, now *holdingResponse) error {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout+pullWait)
	defer cancel()
	return b.call(ctx, url, pullPath, ref, now)
}

// Replicated returns how many bytes of a blob the head has that, besides this one, has most of it.
func (b *Blobs) Replicated(ctx context.Context, ref trivet.BlobRef) (most int64) {
	d, err := blob.ParseDigest(ref.Digest)
	if err != nil {
		return 0
	}
	b.query(ctx, b.otherHeads(), statPath, d, func(h holding) bool {
		most = max(most, h.Bytes)
		return most == ref.Bytes
	})
	return most
}
