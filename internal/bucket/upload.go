package bucket

import (
	"bytes"
	"context"
	"crypto/md5"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"sync"
	"time"

	"github.com/minio/minio-go/v7"
	"golang.org/x/sync/errgroup"

	"github.com/trivet-project/trivet/internal/wait"
)

// Sizes of parts. A server takes at most maxParts, so that files above 160 GB have larger ones. partsAtOnce are sent
// while another one is filled, all in memory.
const (
	minPart     = 16 << 20
	maxParts    = 10_000
	partsAtOnce = 3
)

// Metadata of objects: uploadTag is how the process that wrote one knows it, sumTag the digest that its writer gave it.
const (
	uploadTag = "Trivet-Upload"
	sumTag    = "Trivet-Digest"
)

// Upload is a file that is being written. What has at most one part is sent when it is published.
type Upload struct {
	b       *Bucket
	confirm func(context.Context) error // before it is published
	name    string
	meta    map[string]string
	resumes bool  // parts of an earlier upload of this file that was interrupted are used
	size    int64 // of a part
	buf     []byte
	id      string // of the multipart upload; empty: there is none yet
	count   int    // of its parts

	ctx   context.Context // of the parts
	stop  func()
	sends *errgroup.Group
	mu    sync.Mutex // guards parts and free
	parts []minio.CompletePart
	free  [][]byte
	there map[int]minio.ObjectPart // of the earlier upload; not changed while parts are sent

	published bool
}

// Create begins a file of a size.
func (l *Lock) Create(ctx context.Context, name string, size int64) *Upload {
	return l.b.create(ctx, name, size, l.confirm)
}

// Create begins a file of a size whose name is that of its content, so that writers need no lock: all write the same.
// Digest is kept with it. What is left of an interrupted upload of that file is not sent again.
func (b *Bucket) Create(ctx context.Context, name string, size int64, digest string) *Upload {
	u := b.create(ctx, name, size, func(context.Context) error { return nil })
	u.meta[sumTag], u.resumes = digest, true
	return u
}

func (b *Bucket) create(ctx context.Context, name string, size int64, confirm func(context.Context) error) *Upload {
	u := &Upload{b: b, confirm: confirm, name: name, meta: map[string]string{uploadTag: rand.Text()},
		size: max(minPart, (size+maxParts-1)/maxParts)}
	u.buf = make([]byte, 0, min(u.size, size))
	ctx, u.stop = context.WithCancel(ctx)
	u.sends, u.ctx = errgroup.WithContext(ctx)
	u.sends.SetLimit(partsAtOnce)
	return u
}

// Write implements [io.Writer].
func (u *Upload) Write(p []byte) (n int, err error) {
	for len(p) > 0 {
		if int64(len(u.buf)) == u.size {
			if err := u.flush(); err != nil {
				return n, err
			}
		}
		take := min(int64(len(p)), u.size-int64(len(u.buf)))
		u.buf = append(u.buf, p[:take]...)
		n, p = n+int(take), p[take:]
	}
	return n, nil
}

// flush sends the buffer as a part, and takes another one.
func (u *Upload) flush() (err error) {
	if u.id == "" {
		if err := u.begin(); err != nil {
			return u.b.explain(u.ctx, "write", u.name, err)
		}
	}
	if u.ctx.Err() != nil { // of a part before, or of the caller
		if err := u.sends.Wait(); err != nil {
			return err
		}
		return context.Cause(u.ctx)
	}
	u.count++
	number, part := u.count, u.buf
	u.sends.Go(func() error { return u.send(number, part) })
	u.mu.Lock()
	defer u.mu.Unlock()
	if last := len(u.free) - 1; last >= 0 {
		u.buf, u.free = u.free[last], u.free[:last]
	} else {
		u.buf = make([]byte, 0, u.size)
	}
	return nil
}

// begin begins the upload of parts, or continues an earlier one.
func (u *Upload) begin() (err error) {
	ctx, cancel := context.WithTimeout(u.ctx, requestTimeout)
	defer cancel()
	if u.resumes {
		if u.id, u.there, err = u.b.unfinished(ctx, u.name); err != nil || u.id != "" {
			return err
		}
	}
	u.id, err = u.b.api.NewMultipartUpload(ctx, u.b.name, u.b.prefix+u.name, u.options(true))
	return err
}

// send sends a part, unless it is there.
func (u *Upload) send(number int, part []byte) error {
	ctx, cancel := context.WithTimeout(u.ctx, requestTimeout)
	defer cancel()
	b := u.b
	sha, md := sums(part)
	if etag, ok := u.isSent(number, part, md); ok {
		u.keep(number, part, etag)
		return nil
	}
	opts := minio.PutObjectPartOptions{Sha256Hex: sha, Md5Base64: md, DisableContentSha256: true}
	sent, err := b.api.PutObjectPart(ctx, b.name, b.prefix+u.name, u.id, number, bytes.NewReader(part),
		int64(len(part)), opts)
	if err != nil {
		return b.explain(u.ctx, "write", u.name, err)
	}
	u.keep(number, part, sent.ETag)
	return nil
}

// keep notes that a part is there, whose buffer is used again.
func (u *Upload) keep(number int, part []byte, etag string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for len(u.parts) < number {
		u.parts = append(u.parts, minio.CompletePart{})
	}
	u.parts[number-1] = minio.CompletePart{PartNumber: number, ETag: etag}
	u.free = append(u.free, part[:0])
}

// sums returns what the server verifies: it must compare the SHA-256, and needs the MD5 for buckets with locked
// objects.
func sums(part []byte) (sha256Hex, md5Base64 string) {
	sha, md := sha256.Sum256(part), md5.Sum(part)
	return hex.EncodeToString(sha[:]), base64.StdEncoding.EncodeToString(md[:])
}

func (u *Upload) options(replace bool) minio.PutObjectOptions {
	opts := minio.PutObjectOptions{DisableContentSha256: true, UserMetadata: u.meta}
	if !replace {
		opts.SetMatchETagExcept("*")
	}
	return opts
}

// Publish makes the file visible. One of that name is a [trivet.ErrExists], unless it is replaced.
func (u *Upload) Publish(ctx context.Context, replace bool) error {
	if u.id != "" {
		if err := u.flush(); err != nil {
			return err
		}
		if err := u.sends.Wait(); err != nil {
			return err
		}
	}
	if err := u.confirm(ctx); err != nil {
		return err
	}
	err := u.put(ctx, replace)
	if err != nil && u.isThere(ctx) { // it was, though the answer was lost
		err = nil
	}
	u.published = err == nil
	return u.b.explain(ctx, "write", u.name, err)
}

func (u *Upload) put(ctx context.Context, replace bool) (err error) {
	ctx, cancel := context.WithTimeout(ctx, completeTimeout)
	defer cancel()
	b := u.b
	if u.id == "" {
		sha, md := sums(u.buf)
		_, err = b.api.PutObject(ctx, b.name, b.prefix+u.name, bytes.NewReader(u.buf), int64(len(u.buf)), md, sha,
			u.options(replace))
		return err
	}
	opts := u.options(replace)
	opts.UserMetadata = nil // it has it since its begin
	_, err = b.api.CompleteMultipartUpload(ctx, b.name, b.prefix+u.name, u.id, u.parts, opts)
	return err
}

// isThere reports whether the object of that name is this one.
func (u *Upload) isThere(ctx context.Context) bool {
	o, err := u.b.Open(ctx, u.name)
	if err != nil {
		return false
	}
	defer o.Close()
	return o.info.UserMetadata[uploadTag] == u.meta[uploadTag]
}

// Interrupt ends an upload that is not published, and leaves its parts for the next one of this file.
func (u *Upload) Interrupt() {
	u.stop()
	_ = u.sends.Wait() // they are cancelled
}

// Discard removes what was sent, unless it was published. Where it cannot, the next process does.
func (u *Upload) Discard() {
	u.Interrupt()
	if u.published || u.id == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(u.ctx), cleanupTimeout)
	defer cancel()
	for range aborts {
		_ = u.b.abort(ctx, u.name, u.id)
		_ = wait.Sleep(ctx, abortPause)
	}
}

// cleanupTimeout bounds what is done after a failure. A server may still store a part whose request was cut off when
// the upload is removed, so it is asked again.
const (
	cleanupTimeout = 10 * time.Second
	aborts         = 3
	abortPause     = 500 * time.Millisecond
)

// abort removes an upload that is not complete.
func (b *Bucket) abort(ctx context.Context, name, id string) error {
	err := b.api.AbortMultipartUpload(ctx, b.name, b.prefix+name, id)
	if minio.ToErrorResponse(err).Code == minio.NoSuchUpload {
		return nil
	}
	return b.explain(ctx, "remove the incomplete upload of", name, err)
}
