// Package blobs makes this head hold the blobs that records refer to: when a record begins to refer to one, and when
// the head's own copy was lost.
package blobs

import (
	"context"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/reconcile"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
)

// Replica is this head's copies of blobs.
type Replica interface {
	// Ensure fetches a blob that is missing here, and reports whether a record refers to it.
	Ensure(ctx context.Context, digest string) (referenced bool, err error)
	// Missing returns the blobs that records refer to and that this head does not hold.
	Missing() []trivet.BlobRef
}

// Declaration is what the controller reads.
var Declaration = reconcile.Declaration{
	Name:    "blobs",
	Reads:   []trivet.Kind{"Image", "Platform", "Workflow", "Upgrade", "Head"},
	Watches: []trivet.Kind{"Image", "Platform", "Workflow", "Upgrade", "Head"},
	Input:   input,
	Workers: 2,
}

// input is when a head was started last: it may hold what is missing here.
func input(r trivet.Record) any {
	if h, ok := r.(*trivet.Head); ok {
		return h.Status.Started.UnixNano()
	}
	return nil
}

// checkInterval is how often a head checks that it holds a blob.
const checkInterval = time.Minute

// Controller implements [reconcile.Controller]. Its keys are digests.
type Controller struct {
	replica Replica
	tables  *state.Tables
}

// New returns the controller.
func New(r Replica, tables *state.Tables) *Controller { return &Controller{r, tables} }

// Declaration implements [reconcile.Controller].
func (c *Controller) Declaration() reconcile.Declaration { return Declaration }

// Keys implements [reconcile.Controller].
func (c *Controller) Keys() (digests []string) {
	for u := range c.tables.BlobUses() {
		digests = append(digests, u.Ref.Digest)
	}
	return digests
}

// Affected implements [reconcile.Controller]: the blobs of a record that is new or changed its spec, or of a platform;
// and what is missing when another head appears that may hold it.
func (c *Controller) Affected(e *store.Event) (digests []string) {
	now, was := e.Record(), e.Old()
	var refs []trivet.BlobRef
	switch {
	case now == nil:
	case e.Kind == "Head":
		refs = c.replica.Missing()
	case was == nil || was.Header().Generation != now.Header().Generation || e.Kind == "Platform": // its status has some
		refs = state.BlobsOf(now)
	}
	for _, ref := range refs {
		digests = append(digests, ref.Digest)
	}
	return digests
}

// Reconcile implements [reconcile.Controller].
func (c *Controller) Reconcile(ctx context.Context, digest string) (after time.Duration, err error) {
	referenced, err := c.replica.Ensure(ctx, digest)
	if err != nil || !referenced {
		return 0, err
	}
	return checkInterval, nil
}
