package replica

import (
	"context"
	"slices"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/blob"
	"github.com/trivet-project/trivet/internal/bucket"
)

// checkBucket checks the copies in the bucket, if the site has one. It returns the first error of result.
func (b *Blobs) checkBucket(ctx context.Context, req trivet.BlobCheck, result func(trivet.BlobCopy) error) error {
	images := slices.DeleteFunc(b.Tables.ImageBlobs(), func(ref trivet.BlobRef) bool {
		return len(req.Digests) > 0 && !slices.Contains(req.Digests, ref.Digest)
	})
	if len(images) == 0 {
		return nil
	}
	bk, err := b.bucket()
	if err != nil {
		return result(trivet.BlobCopy{Head: trivet.BucketCopy, State: trivet.CopyUnknown, Problem: err.Error()})
	}
	if bk == nil {
		return nil
	}
	for _, ref := range images {
		d, err := blob.ParseDigest(ref.Digest)
		if err != nil {
			return err
		}
		c, err := b.checkCopy(ctx, bk, ref, d, req, result)
		if err != nil {
			return err
		}
		if c.State == trivet.CopyUnknown { // so are the others, each after a timeout
			c.Digest = ""
			return result(c)
		}
		if err := result(c); err != nil {
			return err
		}
	}
	return nil
}

// checkCopy checks one copy in the bucket, reports its progress meanwhile, and writes it again with req.Repair.
func (b *Blobs) checkCopy(ctx context.Context, bk *bucket.Bucket, ref trivet.BlobRef, d blob.Digest,
	req trivet.BlobCheck, result func(trivet.BlobCopy) error) (c trivet.BlobCopy, err error) {
	look := statCopy
	if req.Deep {
		look = func(ctx context.Context, bk *bucket.Bucket, ref trivet.BlobRef, d blob.Digest) error {
			return readCopy(ctx, bk, ref, d, b.bucketProgress(ref, result))
		}
	}
	failed := look(ctx, bk, ref, d)
	if err := endOf(ctx); err != nil {
		return c, err
	}
	c = trivet.BlobCopy{Head: trivet.BucketCopy, Digest: ref.Digest, State: stateOfCopy(failed), Bytes: ref.Bytes}
	switch c.State {
	case trivet.CopyGood:
		return c, nil
	case trivet.CopyUnknown:
		c.Bytes, c.Problem = 0, failed.Error()
		return c, nil
	case trivet.CopyDamaged:
		c.Problem = problemOf(failed)
	}
	if c.Bytes = 0; !req.Repair {
		return c, nil
	}
	if failed := b.sendToBucket(ctx, bk, ref, d); failed != nil {
		c.Problem = "it cannot be written again: " + failed.Error()
		return c, endOf(ctx)
	}
	return trivet.BlobCopy{Head: trivet.BucketCopy, Digest: ref.Digest, State: trivet.CopyRepaired, Bytes: ref.Bytes}, nil
}

// bucketProgress reports how much of a copy was read.
func (b *Blobs) bucketProgress(ref trivet.BlobRef, result func(trivet.BlobCopy) error) blob.Pace {
	last, read := time.Now(), int64(0)
	return func(_ context.Context, n int) error {
		read += int64(n)
		b.inBucket.read.Add(float64(n))
		if time.Since(last) < checkInterval {
			return nil
		}
		last = time.Now()
		return result(trivet.BlobCopy{Head: trivet.BucketCopy, Digest: ref.Digest, State: trivet.CopyChecking, Bytes: read})
	}
}
