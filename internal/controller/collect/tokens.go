package collect

import (
	"context"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/store"
)

// tokens deletes API and join tokens that have expired.
func (c *Controller) tokens(ctx context.Context, now time.Time) error {
	for t := range c.tables.Tokens.AllShared() {
		if !tokenExpired(t, now) {
			continue
		}
		err := c.delete(ctx, func(tx *store.Tx) error {
			now, err := c.tables.Tokens.In(tx).Get(t.Name)
			if err != nil || now.UID != t.UID || !now.Spec.Expires.Equal(t.Spec.Expires) {
				return err
			}
			return c.tables.Tokens.In(tx).Delete(t.Name)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func tokenExpired(t *trivet.Token, now time.Time) bool {
	return !t.Spec.Expires.IsZero() && now.Sub(t.Spec.Expires) > keepToken
}
