package bucket

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/wait"
)

// Sizes of the ranges that are requested: the first are small, as often no more is read.
const (
	firstRange = 128 << 10
	maxRange   = 64 << 20
)

// readAttempts is how often a range is requested that brings nothing.
const (
	readAttempts = 5
	readPause    = time.Second
)

// Object is an object that is read. It is the same one for as long as it is open.
type Object struct {
	b    *Bucket
	ctx  context.Context
	stop func()
	name string
	info minio.ObjectInfo
}

// Open opens an object to be read until ctx ends.
func (b *Bucket) Open(ctx context.Context, name string) (*Object, error) {
	short, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	info, err := b.api.StatObject(short, b.name, b.prefix+name, minio.StatObjectOptions{})
	if err != nil {
		return nil, b.explain(ctx, "read", name, err)
	}
	o := &Object{b: b, name: name, info: info}
	o.ctx, o.stop = context.WithCancel(ctx)
	return o, nil
}

// Size returns the size of the object.
func (o *Object) Size() int64 { return o.info.Size }

// Digest returns the digest that the object's writer gave it; empty: none.
func (o *Object) Digest() string { return o.info.UserMetadata[sumTag] }

// Close ends all reads.
func (o *Object) Close() error {
	o.stop()
	return nil
}

// Range returns a reader of n bytes from an offset. It requests them in pieces, and again where a connection is lost.
func (o *Object) Range(at, n int64) io.Reader {
	return &rangeReader{o: o, at: at, end: at + n, piece: firstRange}
}

type rangeReader struct {
	o       *Object
	at, end int64
	piece   int64 // size of the next request
	body    io.ReadCloser
	left    int64 // of the body
	failed  int   // attempts since the last byte
}

// Read implements [io.Reader].
func (r *rangeReader) Read(p []byte) (int, error) {
	for r.at < r.end {
		n, err := r.read(p)
		if n > 0 {
			r.at, r.left, r.failed = r.at+int64(n), r.left-int64(n), 0
			return n, nil
		}
		if err == nil {
			continue
		}
		r.close()
		if r.failed++; r.failed >= readAttempts || r.o.ctx.Err() != nil || !isTransient(err) {
			return 0, r.o.b.explain(r.o.ctx, "read", r.o.name, err)
		}
		_ = wait.Sleep(r.o.ctx, readPause)
	}
	return 0, io.EOF
}

// read reads from the response of a range, and requests the next one where there is none.
func (r *rangeReader) read(p []byte) (n int, err error) {
	if r.body == nil {
		if err := r.request(); err != nil {
			return 0, err
		}
	}
	n, err = r.body.Read(p[:min(int64(len(p)), r.left)])
	if r.left == int64(n) {
		r.close()
		return n, nil
	}
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

func (r *rangeReader) request() error {
	size := min(r.piece, r.end-r.at)
	opts := minio.GetObjectOptions{}
	if err := errors.Join(opts.SetRange(r.at, r.at+size-1), opts.SetMatchETag(r.o.info.ETag)); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.o.ctx, requestTimeout)
	body, _, header, err := r.o.b.api.GetObject(ctx, r.o.b.name, r.o.b.prefix+r.o.name, opts)
	if minio.ToErrorResponse(err).Code == minio.PreconditionFailed {
		err = &trivet.Error{Op: "read", Name: r.o.b.Path(r.o.name), Hint: "run the command again",
			Err: fmt.Errorf("%w: it was replaced meanwhile", trivet.ErrConflict)}
	}
	if err != nil {
		cancel()
		return err
	}
	r.body, r.left, r.piece = cancelling{body, cancel}, size, min(4*r.piece, maxRange)
	want := fmt.Sprintf("bytes %d-%d/", r.at, r.at+size-1)
	if got := header.Get("Content-Range"); !strings.HasPrefix(got, want) {
		return fmt.Errorf("%w: the S3 server sends %.80q instead of %q", trivet.ErrUnavailable, got, want)
	}
	return nil
}

func (r *rangeReader) close() {
	if r.body != nil {
		r.body.Close()
		r.body = nil
	}
}

// cancelling is a body whose request is cancelled when it is closed.
type cancelling struct {
	io.ReadCloser
	cancel func()
}

func (c cancelling) Close() error {
	c.cancel()
	return c.ReadCloser.Close()
}

// isTransient reports whether another attempt may succeed. The client has repeated what the server asks to repeat.
func isTransient(err error) bool {
	return minio.ToErrorResponse(err).Code == "" && !errors.Is(err, trivet.ErrConflict)
}
