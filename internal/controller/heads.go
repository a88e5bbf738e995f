package controller

import (
	"context"
	"time"
)

// HeadReconciler is [membership.Reconciler].
type HeadReconciler interface {
	Reconcile(ctx context.Context, name string) (again time.Duration, err error)
}
