package controller

import (
	"context"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/fleet"
	"github.com/trivet-project/trivet/internal/replica"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
)

// blobs makes this head hold what records refer to: when one comes to refer to it, and when its own folder has lost it.
//
// Reads: images, platforms, workflows, heads. Writes: this head's folder of blobs.
type blobs struct {
	fleet *fleet.Fleet
	held  *replica.Blobs
}

// lookAgain is how often a head looks whether it holds what it should.
const lookAgain = time.Minute

func (b *blobs) reconcile(ctx context.Context, digest string) (again time.Duration, err error) {
	wanted, err := b.held.Ensure(ctx, digest)
	if err != nil || !wanted {
		return 0, err
	}
	return lookAgain, nil
}

func (b *blobs) all() (digests []string) {
	for u := range b.fleet.BlobUses() {
		digests = append(digests, u.Ref.Digest)
	}
	return digests
}

// of gives the blobs of a record that comes, or changes in more than its status; and what is missing when a head comes that
// may have it.
func (b *blobs) of(e *store.Event) (digests []string) {
	now, was := e.Record(), e.Old()
	var refs []trivet.BlobRef
	switch {
	case now == nil:
	case e.Kind == "Head":
		refs = b.held.Missing()
	case was == nil || was.Header().Generation != now.Header().Generation:
		refs = state.BlobsOf(now)
	}
	for _, ref := range refs {
		digests = append(digests, ref.Digest)
	}
	return digests
}
