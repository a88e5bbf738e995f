package replica

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/blob"
	"github.com/trivet-project/trivet/internal/bucket"
)

// errOwnDamaged: this head's own copy is not what its name says.
var errOwnDamaged = fmt.Errorf("%w: this head's copy is damaged", trivet.ErrUnavailable)

// EnsureInBucket makes the bucket have a copy of the content of an image, by what a request for its size and digest
// says. It reports whether the copy was written now.
func (b *Blobs) EnsureInBucket(ctx context.Context, ref trivet.BlobRef) (sent bool, err error) {
	d, err := blob.ParseDigest(ref.Digest)
	if err != nil {
		return false, err
	}
	bk, err := b.bucket()
	if err != nil || bk == nil {
		return false, err
	}
	err = statCopy(ctx, bk, ref, d)
	switch stateOfCopy(err) {
	case trivet.CopyGood:
		return false, nil
	case trivet.CopyUnknown:
		return false, err
	case trivet.CopyDamaged:
		b.Log.Warn("a copy in the bucket is damaged; writing it again", "blob", d, "error", err)
	}
	return true, b.sendToBucket(ctx, bk, ref, d)
}

// sendToBucket writes a copy in the place of the one that is there, from this head's own, which it gets first where it
// has none. The copy counts when the bucket has it with its size and digest.
func (b *Blobs) sendToBucket(ctx context.Context, bk *bucket.Bucket, ref trivet.BlobRef, d blob.Digest) error {
	if conf := b.bucketConfig(); conf == nil || conf.Suspend {
		return &trivet.Error{Op: "write to the bucket", Name: bk.Path(""),
			Err:  fmt.Errorf("%w: spec.blobs.suspend of the site is set", trivet.ErrConflict),
			Hint: `trivet patch site site '{"spec": {"blobs": {"suspend": false}}}'`}
	}
	for attempt := 1; ; attempt++ {
		if err := b.puller.Pull(ctx, ref); err != nil {
			return err
		}
		err := b.sendOwn(ctx, bk, ref, d)
		if err == nil {
			return statCopy(ctx, bk, ref, d)
		}
		if !errors.Is(err, errOwnDamaged) || attempt == 2 {
			return err
		}
	}
}

// sendOwn writes this head's copy and its chunk table to the bucket.
func (b *Blobs) sendOwn(ctx context.Context, bk *bucket.Bucket, ref trivet.BlobRef, d blob.Digest) error {
	table, err := b.Store.Table(d)
	if err != nil {
		return err
	}
	f, size, err := b.Store.Get(d)
	if err != nil {
		return err
	}
	defer f.Close()
	u := bk.Create(ctx, imageFile(d), size, ref.Digest)
	defer u.Interrupt()
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(sum, u), &pacedReader{ctx: ctx, from: f})
	b.inBucket.sent.Add(float64(n))
	if err != nil {
		return err
	}
	if n != ref.Bytes || blob.Digest(sum.Sum(nil)) != d || blob.DigestOf(table).String() != ref.Chunks {
		u.Discard()
		if err := b.Store.Verify(ctx, d, nil); err != nil && !errors.Is(err, trivet.ErrInvalid) {
			return err
		}
		return errOwnDamaged
	}
	if err := u.Publish(ctx, true); err != nil {
		return err
	}
	t := bk.Create(ctx, imageFile(d)+tableSuffix, int64(len(table)), ref.Chunks)
	defer t.Interrupt()
	if _, err := t.Write(table); err != nil {
		return err
	}
	if err := t.Publish(ctx, true); err != nil {
		return err
	}
	b.Log.Info("copied an image to the bucket", "blob", d, "bytes", n)
	return nil
}
