package recovery

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

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

// Create makes a backup in the directory, with the contents of blobs if contents is set. It is there, with all that
// belongs to it, or not at all, wherever this process or the computer stops.
func (d *Dir) Create(ctx context.Context, from Cluster, contents bool, progress Progress) (c Created, err error) {
	var m *archive.Manifest
	file := filepath.Join(d.path, partial+"-file")
	defer os.Remove(file)
	if m, err = d.receive(ctx, from, contents, file, progress); err != nil {
		return c, explain("back up", d.path, err)
	}
	path := filepath.Join(d.path, nameOf(m))
	if contents {
		if c.Copied, c.CopiedBytes, err = d.copyBlobs(ctx, from, m.Blobs, progress); err != nil {
			return c, explain("back up", d.path, err)
		}
	}
	if _, err := os.Lstat(path); err == nil {
		return c, explain("back up", path, trivet.ErrExists)
	}
	if err := os.Rename(file, path); err != nil {
		return c, explain("back up", path, err)
	}
	if err := syncDir(d.path); err != nil {
		return c, explain("back up", path, err)
	}
	c.Entry = entryOf(path)
	return c, nil
}

// receive writes the file of a new backup under another name, and its content to the disk.
func (d *Dir) receive(ctx context.Context, from Cluster, contents bool, path string, progress Progress) (
	m *archive.Manifest, err error) {
	body, err := from.Backup(ctx, contents)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	return m, write(path, func(f *os.File) error {
		meter := &meter{progress: progress}
		m, err = archive.Copy(f, meter.of(body), func(m *archive.Manifest, size int64) error {
			meter.name, meter.total = nameOf(m), size
			return checkSpace(d.path, size)
		})
		return sourceError(ctx, err)
	})
}

// copyBlobs saves the contents of blobs that are not there yet.
func (d *Dir) copyBlobs(ctx context.Context, from Cluster, blobs []trivet.BlobRef, progress Progress) (n int,
	bytes int64, err error) {
	if err := os.MkdirAll(filepath.Join(d.path, blobsDir), 0o700); err != nil {
		return 0, 0, err
	}
	missing := blobs[:0:0]
	need := int64(0)
	for _, b := range blobs {
		if !isSaved(d.path, b) {
			missing, need = append(missing, b), need+b.Bytes
		}
	}
	if err := checkSpace(d.path, need); err != nil {
		return 0, 0, err
	}
	for _, b := range missing {
		if err := d.copyBlob(ctx, from, b, progress); err != nil {
			return n, bytes, err
		}
		n, bytes = n+1, bytes+b.Bytes
	}
	return n, bytes, nil
}

// blobAttempts is how often the content of a blob is requested, with the pause between: a head may be lost meanwhile.
const (
	blobAttempts = 3
	blobPause    = time.Second
)

func (d *Dir) copyBlob(ctx context.Context, from Cluster, b trivet.BlobRef, progress Progress) (err error) {
	for range blobAttempts {
		if err = d.tryBlob(ctx, from, b, progress); err == nil || ctx.Err() != nil ||
			errors.Is(err, syscall.ENOSPC) || errors.Is(err, trivet.ErrNotFound) {
			break
		}
		select {
		case <-ctx.Done():
		case <-time.After(blobPause):
		}
	}
	if errors.Is(err, trivet.ErrNotFound) {
		return &trivet.Error{Op: "copy blob", Name: b.Digest, Err: err, Hint: "no head has it: import the image or " +
			"platform that refers to it again, or delete that; or back up without --blobs"}
	}
	return err
}

func (d *Dir) tryBlob(ctx context.Context, from Cluster, b trivet.BlobRef, progress Progress) error {
	digits, ok := archive.DigestOf(b)
	if !ok {
		return archive.ErrDamaged
	}
	body, err := from.Blob(ctx, b.Digest)
	if err != nil {
		return err
	}
	defer body.Close()
	return write(blobPath(d.path, digits), func(f *os.File) error {
		sum := sha256.New()
		m := &meter{progress: progress, name: b.Digest, total: b.Bytes}
		n, err := io.Copy(io.MultiWriter(f, sum), io.LimitReader(m.of(body), b.Bytes+1))
		if err != nil {
			return sourceError(ctx, err)
		}
		if n != b.Bytes || hex.EncodeToString(sum.Sum(nil)) != digits {
			return fmt.Errorf("%w: what a head sent as blob %s is something else", trivet.ErrUnavailable, b.Digest)
		}
		return nil
	})
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

// checkSpace returns ENOSPC where a directory has not enough free space.
func checkSpace(dir string, need int64) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	if free := int64(fs.Bavail) * fs.Bsize; free < need {
		return fmt.Errorf("%d MiB free in %s, %d MiB needed: %w", free>>20, dir, need>>20+1, syscall.ENOSPC)
	}
	return nil
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
