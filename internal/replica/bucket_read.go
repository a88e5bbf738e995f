package replica

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/blob"
	"github.com/trivet-project/trivet/internal/bucket"
)

// bucketScheme is that of the URL by which the client of blobs reads from the bucket, as from a head.
const (
	bucketScheme = "trivet-bucket"
	bucketURL    = bucketScheme + "://" + imagesDir
)

// findTimeout bounds how long a pull waits for whether the bucket has an image.
const findTimeout = 5 * time.Second

// hasInBucket reports whether the bucket has the content of an image, as a source where no head has it. Platforms are
// never read from it: what boots machines must not depend on it.
func (b *Blobs) hasInBucket(ctx context.Context, ref trivet.BlobRef, d blob.Digest) (bool, error) {
	use, ok := b.Tables.BlobUse(ref.Digest)
	if !ok || use.Kind != "Image" && use.Kind != "Workflow" || use.Ref != ref || ref.Chunks == "" {
		return false, nil
	}
	bk, err := b.bucket()
	if err != nil || bk == nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, findTimeout) // pulls of what boots machines may wait for this one
	defer cancel()
	err = statCopy(ctx, bk, ref, d)
	switch stateOfCopy(err) {
	case trivet.CopyGood:
		return true, nil
	case trivet.CopyMissing:
		return false, nil
	}
	return false, fmt.Errorf("the copy in the bucket: %w", err)
}

// bucketReader serves requests of the client of blobs from the bucket. It implements [http.RoundTripper].
type bucketReader struct{ blobs *Blobs }

func (t bucketReader) RoundTrip(r *http.Request) (*http.Response, error) {
	bk, err := t.blobs.bucket()
	if err != nil {
		return nil, err
	}
	hex, ok := strings.CutPrefix(r.URL.Path, "/blob/sha256:")
	if bk == nil || !ok {
		return respond(r, http.StatusNotFound), nil
	}
	o, err := bk.Open(r.Context(), imagesDir+"/"+hex)
	if errors.Is(err, fs.ErrNotExist) {
		return respond(r, http.StatusNotFound), nil
	}
	if err != nil {
		return nil, err
	}
	return t.respondWith(r, o)
}

// respondWith responds with an object from the offset that the request names.
func (t bucketReader) respondWith(r *http.Request, o *bucket.Object) (*http.Response, error) {
	offset, size := int64(0), o.Size()
	text, ok := strings.CutPrefix(r.Header.Get("Range"), "bytes=")
	if ok {
		var err error
		if offset, err = strconv.ParseInt(strings.TrimSuffix(text, "-"), 10, 64); err != nil || offset > size {
			o.Close()
			return respond(r, http.StatusRequestedRangeNotSatisfiable), nil
		}
	}
	resp := respond(r, http.StatusPartialContent)
	resp.Header.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", offset, size-1, size))
	resp.ContentLength = size - offset
	resp.Body = &objectReader{t.blobs, o, o.Range(offset, size-offset)}
	return resp, nil
}

func respond(r *http.Request, status int) *http.Response {
	return &http.Response{StatusCode: status, Status: fmt.Sprintf("%d %s", status, http.StatusText(status)),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{}, Request: r, Body: http.NoBody}
}

// objectReader reads an object, and counts what is read: servers charge for it.
type objectReader struct {
	blobs  *Blobs
	object *bucket.Object
	from   io.Reader
}

func (r *objectReader) Read(p []byte) (int, error) {
	n, err := r.from.Read(p)
	r.blobs.inBucket.read.Add(float64(n))
	return n, err
}

func (r *objectReader) Close() error { return r.object.Close() }
