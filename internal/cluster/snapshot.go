package cluster

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"

	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"golang.org/x/sys/unix"

	"github.com/trivet-project/trivet"
)

// Snapshot is a copy of all that a member's store had at one revision, in a file without a name. The values in it are
// encrypted as they are in the store.
type Snapshot struct {
	File     *os.File // at its beginning; closing it removes it
	Bytes    int64
	SHA256   string // hex
	Revision int64
}

// Snapshot copies the store into a directory. The store is read at the speed of the disk, and not at that of the
// receiver of the copy: meanwhile etcd cannot use again what is deleted, and is not defragmented.
func (m *Member) Snapshot(ctx context.Context, dir string) (s *Snapshot, err error) {
	b := m.etcd.Server.Backend()
	if err := snapshotSpace(dir, b.Size()); err != nil {
		return nil, err
	}
	f, err := unnamedFile(dir)
	if err != nil {
		return nil, snapshotError(err)
	}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	snap, sum := b.Snapshot(), sha256.New()
	n, err := snap.WriteTo(contextWriter{ctx, io.MultiWriter(f, sum)})
	if err = errors.Join(err, snap.Close()); err != nil {
		if ctx.Err() != nil { // bbolt does not wrap it
			err = context.Cause(ctx)
		}
		return nil, snapshotError(err)
	}
	s = &Snapshot{File: f, Bytes: n, SHA256: hex.EncodeToString(sum.Sum(nil))}
	if s.Revision, err = revisionOf(f); err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	return s, snapshotError(err)
}

// snapshotSpace returns an error if a copy would use space that the store needs.
func snapshotSpace(dir string, size int64) error {
	free, err := freeIn(dir)
	if err == nil && free < size+DefaultReserve {
		err = fmt.Errorf("%d MiB free, %d MiB needed: %w", free>>20, (size+DefaultReserve)>>20, unix.ENOSPC)
	}
	return snapshotError(err)
}

func snapshotError(err error) error {
	if err == nil {
		return nil
	}
	e := &trivet.Error{Op: "copy the store", Err: fmt.Errorf("%w: %w", trivet.ErrUnavailable, err)}
	if errors.Is(err, unix.ENOSPC) {
		e.Hint = "free some space on the disk of this head, or let another head make the backup"
	}
	return e
}

// unnamedFile returns a file that is removed when it is closed, or its process ends.
func unnamedFile(dir string) (*os.File, error) {
	f, err := os.CreateTemp(dir, ".snapshot-")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(f.Name()); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// contextWriter fails when a context has ended.
type contextWriter struct {
	ctx context.Context
	w   io.Writer
}

func (c contextWriter) Write(b []byte) (int, error) {
	if err := context.Cause(c.ctx); err != nil {
		return 0, err
	}
	return c.w.Write(b)
}

// revisionOf returns the last revision in a copy of a store.
func revisionOf(f *os.File) (revision int64, err error) {
	db, err := bbolt.Open(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), 0o600, &bbolt.Options{ReadOnly: true})
	if err != nil {
		return 0, err
	}
	defer db.Close()
	return revision, db.View(func(tx *bbolt.Tx) error {
		revision, err = lastRevision(tx)
		return err
	})
}

// lastRevision returns the last revision in a store: the keys of its bucket begin with it. Where the last change was a
// deletion, and is compacted, it is the revision of the compaction.
func lastRevision(tx *bbolt.Tx) (int64, error) {
	bucket, meta := tx.Bucket(schema.Key.Name()), tx.Bucket(schema.Meta.Name())
	if bucket == nil || meta == nil {
		return 0, errNoStore
	}
	last := int64(0)
	key, _ := bucket.Cursor().Last()
	for _, text := range [][]byte{key, meta.Get(schema.FinishedCompactKeyName)} {
		if len(text) >= 8 {
			last = max(last, int64(binary.BigEndian.Uint64(text)))
		}
	}
	return last, nil
}

var errNoStore = fmt.Errorf("%w: it is not a copy of a store", trivet.ErrInvalid)
