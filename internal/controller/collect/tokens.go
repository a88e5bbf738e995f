package collect

import (
	"context"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/store"
)

// tokens deletes API and join tokens that have expired.
func (c *Controller) tokens(ctx context.Context, now time.Time) error {
	return each(ctx, &c.pass, keyTokens, c.Tables.Tokens, func(t *trivet.Token) error {
		if !tokenExpired(t, now) {
			return nil
		}
		return c.delete(ctx, "Token", t.Name, func(tx *store.Tx) (bool, error) {
			t, err := c.Tables.Tokens.In(tx).Get(t.Name)
			return err == nil && tokenExpired(t, now), err
		})
	})
}

func tokenExpired(t *trivet.Token, now time.Time) bool {
	return !t.Spec.Expires.IsZero() && now.Sub(t.Spec.Expires) > keepToken
}
