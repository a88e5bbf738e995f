package recovery

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"syscall"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/archive"
)

// Cluster is where backups come from.
type Cluster interface {
	// Backup begins a backup and returns its file.
	Backup(ctx context.Context, contents bool) (io.ReadCloser, error)
	// Blob returns the content of a blob.
	Blob(ctx context.Context, digest string) (io.ReadCloser, error)
}

// Progress is called with how far a transfer of a file or blob is. total is its size.
type Progress func(name string, done, total int64)

// Created is a backup that was made.
type Created struct {
	Entry
	// Copied are the blobs whose contents were copied, and were not saved by an earlier backup.
	Copied      int   `json:"copied"`
	CopiedBytes int64 `json:"copiedBytes"`
}

// Create makes a backup at a location, with the contents of blobs if contents is set. It is there, with all that
// belongs to it, or not at all, wherever this process or the computer stops.
func Create(ctx context.Context, to Location, from Cluster, contents bool, progress Progress) (c Created, err error) {
	err = withLock(ctx, to, true, func(p place, w writer) error {
		b := &creation{place: p, writer: w, from: from, contents: contents, progress: progress}
		c, err = b.run(ctx)
		return explain("back up", p.Path(b.name), err)
	})
	return c, err
}

// creation is a backup that is being made.
type creation struct {
	place    place
	writer   writer
	from     Cluster
	contents bool
	progress Progress
	name     string // of its file, once that is whole
}

func (b *creation) run(ctx context.Context) (c Created, err error) {
	file, m, err := b.receive(ctx)
	if err != nil {
		return c, err
	}
	defer file.Discard()
	if b.contents {
		copied, err := b.copyBlobs(ctx, m.Blobs)
		if err != nil {
			return c, err
		}
		for _, ref := range copied {
			c.Copied, c.CopiedBytes = c.Copied+1, c.CopiedBytes+ref.Bytes
		}
	}
	b.name = nameOf(m)
	if err := file.Publish(ctx, false); err != nil {
		return c, err
	}
	saved, err := b.place.List(ctx, blobsDir)
	if err != nil {
		return c, err
	}
	if c.Entry, err = entryOf(ctx, b.place, b.name, saved); err == nil && c.State != Complete {
		err = &trivet.Error{Op: "back up", Name: b.place.Path(b.name), Hint: "run the command again",
			Err: fmt.Errorf("%w: another process changed it meanwhile: %s", trivet.ErrConflict, c.Problem)}
	}
	return c, err
}

// receive writes the file of a new backup, which has no name yet.
func (b *creation) receive(ctx context.Context) (file newFile, m *archive.Manifest, err error) {
	body, err := b.from.Backup(ctx, b.contents)
	if err != nil {
		return nil, nil, err
	}
	defer body.Close()
	meter := &meter{progress: b.progress}
	m, err = archive.Copy(meter.of(body), func(m *archive.Manifest, size int64) (io.Writer, error) {
		meter.name, meter.total = nameOf(m), size
		file, err = b.writer.Create(ctx, nameOf(m), size)
		return file, err
	})
	if err != nil && file != nil {
		file.Discard()
	}
	return file, m, sourceError(ctx, err)
}

// copyBlobs saves the contents of blobs that are not there yet, and returns those.
func (b *creation) copyBlobs(ctx context.Context, blobs []trivet.BlobRef) (missing []trivet.BlobRef, err error) {
	saved, err := b.place.List(ctx, blobsDir)
	if err != nil {
		return nil, err
	}
	need := int64(0)
	for _, ref := range blobs {
		if !isSaved(saved, ref) {
			missing, need = append(missing, ref), need+ref.Bytes
		}
	}
	if err := b.writer.Space(need); err != nil {
		return nil, err
	}
	for _, ref := range missing {
		if err := b.copyBlob(ctx, ref); err != nil {
			return nil, err
		}
	}
	return missing, nil
}

// blobAttempts is how often the content of a blob is requested, with the pause between: a head may be lost meanwhile.
const (
	blobAttempts = 3
	blobPause    = time.Second
)

func (b *creation) copyBlob(ctx context.Context, ref trivet.BlobRef) (err error) {
	for range blobAttempts {
		if err = b.tryBlob(ctx, ref); err == nil || ctx.Err() != nil || isFinal(err) {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(blobPause):
		}
	}
	return err
}

func (b *creation) tryBlob(ctx context.Context, ref trivet.BlobRef) error {
	digits, ok := archive.DigestOf(ref)
	if !ok {
		return archive.ErrDamaged
	}
	body, err := b.from.Blob(ctx, ref.Digest)
	if errors.Is(err, trivet.ErrNotFound) {
		return &trivet.Error{Op: "copy blob", Name: ref.Digest, Err: err, Hint: "no head has it: import the image or " +
			"platform that refers to it again, or delete that; or back up without --blobs"}
	}
	if err != nil {
		return err
	}
	defer body.Close()
	f, err := b.writer.Create(ctx, blobName(digits), ref.Bytes)
	if err != nil {
		return err
	}
	defer f.Discard()
	sum := sha256.New()
	m := &meter{progress: b.progress, name: ref.Digest, total: ref.Bytes}
	n, err := io.Copy(io.MultiWriter(f, sum), io.LimitReader(m.of(body), ref.Bytes+1))
	if err != nil {
		return sourceError(ctx, err)
	}
	if n != ref.Bytes || hex.EncodeToString(sum.Sum(nil)) != digits {
		return fmt.Errorf("%w: what a head sent as blob %s is something else", trivet.ErrUnavailable, ref.Digest)
	}
	return f.Publish(ctx, true)
}

// isFinal reports whether another attempt has the same error.
func isFinal(err error) bool {
	for _, final := range []error{syscall.ENOSPC, trivet.ErrNotFound, trivet.ErrConflict, trivet.ErrForbidden,
		trivet.ErrUnauthenticated} {
		if errors.Is(err, final) {
			return true
		}
	}
	return false
}

// nameOf returns the name of the file of a backup. Names of a cluster sort by time.
func nameOf(m *archive.Manifest) string {
	return fmt.Sprintf("%s-%s-r%d%s", m.Cluster, m.Time.UTC().Format("20060102T150405Z"), m.Revision, suffix)
}

// blobName returns the name of the file with the content of a blob.
func blobName(digits string) string { return blobsDir + "/" + digits }

// isSaved reports whether the content of a blob is among the files of blobsDir, by its size.
func isSaved(saved map[string]int64, ref trivet.BlobRef) bool {
	digits, ok := archive.DigestOf(ref)
	size, there := saved[digits]
	return ok && there && size == ref.Bytes
}

// sourceError is the error of a transfer: a stream that ends early is the head's fault.
func sourceError(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, archive.ErrTruncated), errors.Is(err, archive.ErrNoBackup), errors.Is(err, archive.ErrDamaged):
		return &trivet.Error{Op: "receive the backup", Hint: "nothing was kept; run the command again",
			Err: fmt.Errorf("%w: the head, or the connection to it, was lost: %w", trivet.ErrUnavailable, err)}
	}
	return err
}

// meter counts what is read.
type meter struct {
	progress    Progress
	name        string
	done, total int64
	from        io.Reader
}

func (m *meter) of(r io.Reader) io.Reader {
	m.from = r
	return m
}

func (m *meter) Read(b []byte) (int, error) {
	n, err := m.from.Read(b)
	if m.done += int64(n); m.name != "" && m.progress != nil {
		m.progress(m.name, m.done, m.total)
	}
	return n, err
}
