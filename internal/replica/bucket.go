package replica

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"sync"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/blob"
	"github.com/trivet-project/trivet/internal/bucket"
)

// The bucket of the site has a further copy of the content of each image: IMAGES/HEX and IMAGES/HEX.chunks, the chunk
// table, below the ID of the cluster. Nothing that comes from it is trusted: what is read is compared with the digests
// of the record that refers to it.
const (
	imagesDir   = "images"
	tableSuffix = ".chunks"
)

// statTimeout bounds how long the state of one copy is asked for.
const statTimeout = 20 * time.Second

// openBucket is the bucket of the site, which is opened again when its configuration or its credentials change.
type openBucket struct {
	mu   sync.Mutex
	conf string
	is   *bucket.Bucket
}

// bucket returns the bucket of the site; nil: it has none.
func (b *Blobs) bucket() (*bucket.Bucket, error) {
	conf := b.bucketConfig()
	if conf == nil || b.Unseal == nil {
		return nil, nil
	}
	secret, err := b.Tables.Secrets.Get(trivet.Resolve("", conf.S3.Secret))
	if err != nil {
		return nil, fmt.Errorf("open the bucket of images: %w", err)
	}
	text := fmt.Sprint(*conf.S3, secret.UID, secret.Revision)
	b.remote.mu.Lock()
	defer b.remote.mu.Unlock()
	if b.remote.conf == text {
		return b.remote.is, nil
	}
	keys, err := bucket.KeysOf(conf.S3, secret, b.Unseal)
	if err != nil {
		return nil, err
	}
	is, err := bucket.Open(strings.TrimSuffix(conf.S3.Location, "/")+"/"+b.Cluster, bucket.Config{
		Endpoint: conf.S3.Endpoint, Region: conf.S3.Region, Keys: keys})
	if err == nil {
		b.remote.conf, b.remote.is = text, is
	}
	return is, err
}

// bucketConfig returns the configuration of the bucket; nil: there is none.
func (b *Blobs) bucketConfig() *trivet.SiteBlobs {
	site, err := b.Tables.Sites.GetShared(trivet.SiteName)
	if err != nil || site.Spec.Blobs == nil || site.Spec.Blobs.S3 == nil {
		return nil
	}
	return site.Spec.Blobs
}

func imageFile(d blob.Digest) string {
	return imagesDir + "/" + strings.TrimPrefix(d.String(), "sha256:")
}

// errBadCopy is the kind of error of a copy that is not what its name says.
var errBadCopy = fmt.Errorf("%w", trivet.ErrInvalid)

// stateOfCopy returns the state of a copy in the bucket, by the error of looking at it.
func stateOfCopy(err error) trivet.CopyState {
	switch {
	case err == nil:
		return trivet.CopyGood
	case errors.Is(err, fs.ErrNotExist):
		return trivet.CopyMissing
	case errors.Is(err, errBadCopy):
		return trivet.CopyDamaged
	}
	return trivet.CopyUnknown
}

// statCopy compares the size of a copy, the digest that its writer gave it, and the content of its chunk table.
func statCopy(ctx context.Context, bk *bucket.Bucket, ref trivet.BlobRef, d blob.Digest) error {
	ctx, cancel := context.WithTimeout(ctx, statTimeout)
	defer cancel()
	o, err := bk.Open(ctx, imageFile(d))
	if err != nil {
		return err
	}
	defer o.Close()
	switch {
	case o.Size() != ref.Bytes:
		return fmt.Errorf("%w: the object has %d bytes, not %d", errBadCopy, o.Size(), ref.Bytes)
	case o.Digest() != ref.Digest:
		return fmt.Errorf("%w: the object was written by another program", errBadCopy)
	}
	o, err = bk.Open(ctx, imageFile(d)+tableSuffix)
	if err != nil {
		return err
	}
	defer o.Close()
	table, err := io.ReadAll(o.Range(0, min(o.Size(), maxTable)))
	if err == nil && blob.DigestOf(table).String() != ref.Chunks {
		err = fmt.Errorf("%w: the chunk table is damaged", errBadCopy)
	}
	return err
}

// maxTable bounds a chunk table that is read: that of the largest blob.
const maxTable = 32 << 20

// readCopy reads a copy, and compares it with its digest.
func readCopy(ctx context.Context, bk *bucket.Bucket, ref trivet.BlobRef, d blob.Digest, pace blob.Pace) error {
	if err := statCopy(ctx, bk, ref, d); err != nil {
		return err
	}
	o, err := bk.Open(ctx, imageFile(d))
	if err != nil {
		return err
	}
	defer o.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, &pacedReader{ctx, o.Range(0, o.Size()), pace}); err != nil {
		return err
	}
	if got := blob.Digest(sum.Sum(nil)); got != d {
		return fmt.Errorf("%w: the digest of the object is %s", errBadCopy, got)
	}
	return nil
}

// pacedReader is a reader that ends with a context, and whose rate is bounded.
type pacedReader struct {
	ctx  context.Context
	from io.Reader
	pace blob.Pace // nil: not bounded
}

func (r *pacedReader) Read(p []byte) (int, error) {
	if err := endOf(r.ctx); err != nil {
		return 0, err
	}
	n, err := r.from.Read(p)
	if n > 0 && r.pace != nil {
		if paced := r.pace(r.ctx, n); paced != nil {
			return n, paced
		}
	}
	return n, err
}
