package heads

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

// Secure returns when two full heads hold a blob on stable storage, or this one where no other is a member. It must be called
// before a blob is acknowledged. Where no second head can get it in time, it is [trivet.ErrUnavailable]; what is here stays, and
// Secure may be called again.
func (b *Blobs) Secure(ctx context.Context, ref trivet.BlobRef) error {
	d, err := blob.ParseDigest(ref.Digest)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, b.Bound)
	defer cancel()
	members := slices.DeleteFunc(b.others(), func(o other) bool { return !o.member })
	if !b.Store.Has(d) { // then this head and the one that it comes from hold it
		return b.puller.PullUrgent(ctx, ref)
	}
	ref, err = b.Store.Stat(d)
	if err != nil || len(members) == 0 {
		return err
	}
	var holders []holder
	held := false
	b.ask(ctx, members, d, func(h holder) bool {
		holders = append(holders, h)
		held = h.Ref != nil && *h.Ref == ref
		return held
	})
	if held {
		return nil
	}
	slices.SortStableFunc(holders, func(x, y holder) int { // who has most is done first; who is silent comes last
		return cmp.Or(cmp.Compare(btoi(x.err != nil), btoi(y.err != nil)), cmp.Compare(y.Bytes, x.Bytes))
	})
	return b.spread(ctx, ref, holders)
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// spread makes one of these heads after the other pull the blob, until one holds it or nothing comes at any for long.
func (b *Blobs) spread(ctx context.Context, ref trivet.BlobRef, list []holder) error {
	for came := time.Now(); ; {
		var problems error
		for i := range list {
			moved, err := b.push(ctx, ref, &list[i])
			if err == nil {
				return nil
			}
			if moved {
				came = time.Now()
			}
			problems = errors.Join(problems, fmt.Errorf("%s has %d of %d bytes: %w", list[i].name, list[i].Bytes, ref.Bytes, err))
		}
		if ctx.Err() == nil && time.Since(came) < b.Patience {
			select {
			case <-time.After(b.Patience / 20):
				continue
			case <-ctx.Done():
			}
		}
		return &trivet.Error{Op: "store blob", Name: ref.Digest,
			Err:  fmt.Errorf("%w: only this head holds it, and two must: %w", trivet.ErrUnavailable, problems),
			Hint: "it stays here: try again when another head is up; a head that is gone for good is taken out by 'trivet head remove'"}
	}
}

// push makes a head pull a blob, and waits as long as more of it arrives there.
func (b *Blobs) push(ctx context.Context, ref trivet.BlobRef, h *holder) (moved bool, err error) {
	for came := time.Now(); ; {
		var now Holding
		if err := b.pushOnce(ctx, ref, h.url, &now); err != nil {
			return moved, err
		}
		if now.Bytes > h.Bytes {
			h.Bytes, came, moved = now.Bytes, time.Now(), true
		}
		switch {
		case now.Ref != nil && *now.Ref == ref:
			return true, nil
		case now.Ref != nil:
			return moved, fmt.Errorf("%w: it holds %+v", trivet.ErrInvalid, *now.Ref)
		case now.Problem != "":
			return moved, fmt.Errorf("%w: %s", trivet.ErrUnavailable, now.Problem)
		case ctx.Err() != nil:
			return moved, fmt.Errorf("%w: %w", trivet.ErrUnavailable, context.Cause(ctx))
		case time.Since(came) > b.Patience/2:
			return moved, fmt.Errorf("%w: nothing came there for %s", trivet.ErrUnavailable, b.Patience/2)
		}
	}
}

func (b *Blobs) pushOnce(ctx context.Context, ref trivet.BlobRef, url string, now *Holding) error {
	ctx, cancel := context.WithTimeout(ctx, askTime+pullWait)
	defer cancel()
	return Call(ctx, b.client, url+Prefix+"blobs/pull", ref, now)
}

// Spread is how many bytes of a blob the head has that, besides this one, has most of it.
func (b *Blobs) Spread(ctx context.Context, ref trivet.BlobRef) (most int64) {
	d, err := blob.ParseDigest(ref.Digest)
	if err != nil {
		return 0
	}
	b.ask(ctx, b.others(), d, func(h holder) bool {
		most = max(most, h.Bytes)
		return most == ref.Bytes
	})
	return most
}
