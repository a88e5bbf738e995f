// Package controller holds what promotes and removes heads.
package controller

import (
	"context"
	"time"

	"github.com/trivet-project/trivet/internal/fleet"
	headdoor "github.com/trivet-project/trivet/internal/heads"
)

// Heads takes the next step for one head at a time.
type Heads struct{ heads }

// NewHeads returns it.
func NewHeads(f *fleet.Fleet, members Members, statuses func() map[string]headdoor.Sight) *Heads {
	return &Heads{heads{f, members, statuses}}
}

// Reconcile takes the next step for one head.
func (h *Heads) Reconcile(ctx context.Context, name string) (after time.Duration, err error) {
	return h.reconcile(ctx, name)
}
