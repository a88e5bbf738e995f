package collect

import (
	"context"
	"errors"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/store"
)

// heads deletes the records of heads that were removed long ago, with the keys that they had in the store. Their names
// are not used again, and a head that has one is still refused: see membership.Records.Removed.
func (c *Controller) heads(ctx context.Context, now time.Time) error {
	return each(ctx, &c.pass, keyHeads, c.Tables.Heads, func(h *trivet.Head) error {
		if h.Status.State != trivet.HeadRemoved || hasRemovalTime(h, now) && !removedLongAgo(h, now) {
			return nil
		}
		_, err := c.Tables.Store.Update(ctx, func(tx *store.Tx) error {
			h, err := c.Tables.Heads.In(tx).Get(h.Name)
			switch {
			case err != nil || h.Status.State != trivet.HeadRemoved:
				return err
			case !hasRemovalTime(h, now):
				h.Status.Removed = now.UTC()
				return c.Tables.Heads.In(tx).Put(h)
			case !removedLongAgo(h, now):
				return nil
			}
			tx.ForgetHead(h.Name)
			return c.Tables.Heads.In(tx).Delete(h.Name)
		})
		if errors.Is(err, trivet.ErrNotFound) {
			return nil
		}
		return err
	})
}

// hasRemovalTime reports whether a record says when the head was removed. That of a head which an earlier version
// removed does not; that of a wrong clock is not used.
func hasRemovalTime(h *trivet.Head, now time.Time) bool {
	return !h.Status.Removed.IsZero() && h.Status.Removed.Before(now.Add(keepHead))
}

func removedLongAgo(h *trivet.Head, now time.Time) bool { return now.Sub(h.Status.Removed) >= keepHead }
