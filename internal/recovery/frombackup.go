package recovery

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/archive"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/blob"
	"github.com/trivet-project/trivet/internal/cluster"
)

// openedBackup is a backup whose keys are known.
type openedBackup struct {
	place place
	name  string
	file  *archive.File
	keys  *auth.Keys
}

// openBackup opens the backup that a location names, or the newest complete one of a cluster there.
func openBackup(ctx context.Context, from Location, cluster string, key *Key) (b *openedBackup, err error) {
	b = &openedBackup{}
	if b.place, b.name, err = from.backup(ctx, cluster); err != nil {
		return nil, err
	}
	if b.file, err = openArchive(ctx, b.place, b.name); err != nil {
		return nil, explain("open", b.place.Path(b.name), err)
	}
	if b.keys, _, err = openKeys(b.file, key); err != nil {
		b.file.Close()
		return nil, explain("open", b.place.Path(b.name), err)
	}
	return b, nil
}

// material returns what a cluster is recovered from.
func (b *openedBackup) material(ctx context.Context, progress Progress) (*material, error) {
	m := &material{keys: b.keys, need: b.file.Store.Bytes, plan: Plan{From: FromBackupFile,
		Source: b.place.Path(b.name), Cluster: b.file.Cluster, DataTime: b.file.Time}}
	sizes, err := b.place.List(ctx, blobsDir)
	if err != nil {
		return nil, err
	}
	saved := map[string]bool{}
	for _, ref := range b.file.Blobs {
		if isSaved(sizes, ref) {
			saved[ref.Digest] = true
			m.need += ref.Bytes
		}
	}
	m.restore = func(ctx context.Context, cfg cluster.Config) error {
		meter := &meter{progress: progress, name: "store", total: b.file.Store.Bytes}
		return cluster.Restore(ctx, cfg, meter.of(b.file.StorePart()))
	}
	m.lacks = func(ref trivet.BlobRef) (bool, error) { return !saved[ref.Digest], nil }
	m.blobs = func(ctx context.Context, dir string, refs []trivet.BlobRef) (err error) {
		s, err := blob.Open(dir, blob.Options{})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.Close()) }()
		for _, ref := range refs {
			if err := b.putBlob(ctx, s, ref, progress); err != nil {
				return err
			}
		}
		return nil
	}
	return m, nil
}

func (b *openedBackup) putBlob(ctx context.Context, s *blob.Store, ref trivet.BlobRef, progress Progress) error {
	digits, _ := archive.DigestOf(ref) // it is saved
	f, err := b.place.Open(ctx, blobName(digits))
	if err != nil {
		return err
	}
	defer f.Close()
	meter := &meter{progress: progress, name: ref.Digest, total: ref.Bytes}
	_, err = s.Put(ctx, meter.of(f.Range(0, f.Size())), trivet.BlobRef{Digest: ref.Digest, Bytes: ref.Bytes})
	if errors.Is(err, trivet.ErrInvalid) {
		err = &trivet.Error{Op: "read the content of", Name: ref.Digest, Err: err, Hint: "remove the damaged file " +
			b.place.Path(blobName(digits)) + ": the content counts as missing then, and is to be imported again"}
	}
	return err
}

// lacksBlob reports whether a head's directory has no content of a blob.
func lacksBlob(dir string, ref trivet.BlobRef) (bool, error) {
	info, err := os.Stat(filepath.Join(dir, digitsOf(ref)))
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	return err == nil && info.Size() != ref.Bytes, err
}

// copyBlobs copies blobs of a head's directory.
func copyBlobs(ctx context.Context, from, to string, refs []trivet.BlobRef) error {
	if err := os.MkdirAll(to, 0o700); err != nil {
		return err
	}
	for _, ref := range refs {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		digits := digitsOf(ref)
		for _, name := range []string{digits + ".chunks", digits} {
			if err := copyBlobFile(filepath.Join(from, name), filepath.Join(to, name)); err != nil {
				return err
			}
		}
	}
	return nil
}

func digitsOf(ref trivet.BlobRef) string { return strings.TrimPrefix(ref.Digest, "sha256:") }

func copyBlobFile(from, to string) error {
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	return write(to, func(out *os.File) error {
		_, err := out.ReadFrom(f)
		return err
	})
}
