package blob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/trivet-project/trivet"
)

// part is a blob that is not complete yet: a file and the digests of what is in it.
type part struct {
	store *Store
	file  *os.File
	*sums
	broken error // of the disk: the file may miss what the digests have
}

const (
	pieceBytes = 1 << 20 // read, hashed and written in one go
	pieces     = 3       // on the way at a time
	checkEvery = 64 << 20
)

func (s *Store) newPart(name string) (*part, error) {
	f, err := os.OpenFile(filepath.Join(s.dir, name), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, s.full(err)
	}
	return &part{store: s, file: f, sums: newSums()}, nil
}

// take reads r to its end and adds that. What was added before an error stays, and counts in p.size. The caller's
// goroutine reads; another hashes and writes, and has ended when take returns.
func (p *part) take(ctx context.Context, r io.Reader) error {
	free, full := make(chan []byte, pieces), make(chan []byte, pieces)
	for range pieces {
		free <- make([]byte, pieceBytes)
	}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		p.broken = p.write(full, free)
	}()
	err := fill(ctx, r, p.store.opts.MaxBytes-p.size, free, full, stopped)
	close(full)
	<-stopped
	if p.broken != nil {
		return p.broken
	}
	return err
}

// fill reads pieces until r ends, or writing has stopped.
func fill(ctx context.Context, r io.Reader, room int64, free <-chan []byte, full chan<- []byte, stopped <-chan struct{}) error {
	for {
		var b []byte
		select {
		case b = <-free:
		case <-stopped:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		n, err := readFull(r, b)
		if room -= int64(n); room < 0 {
			return trivet.ErrTooLarge
		}
		full <- b[:n] // has room for all there are
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("%w: input broke off: %w", trivet.ErrInvalid, err)
		}
	}
}

// readFull is io.ReadFull, but tells an input that ended (io.EOF) from one that was cut off (io.ErrUnexpectedEOF).
func readFull(r io.Reader, b []byte) (n int, err error) {
	for n < len(b) && err == nil {
		var m int
		m, err = r.Read(b[n:])
		n += m
	}
	return n, err
}

// write hashes and writes pieces, both at once, until there are no more or one fails.
func (p *part) write(full <-chan []byte, free chan<- []byte) error {
	for b := range full {
		before := p.size
		if before/checkEvery != (before+int64(len(b)))/checkEvery || before == 0 {
			if err := p.store.room(int64(len(b))); err != nil {
				return err
			}
		}
		hashed := make(chan struct{})
		go func() { p.add(b); close(hashed) }()
		_, err := p.file.WriteAt(b, before)
		<-hashed
		if err != nil {
			return p.store.full(err)
		}
		// Writing out begins now, so that the sync at the end is short. That it could not begin is told by that sync.
		_ = unix.SyncFileRange(int(p.file.Fd()), before, int64(len(b)), unix.SYNC_FILE_RANGE_WRITE)
		free <- b[:cap(b)]
	}
	return nil
}

// commit makes the part a blob, if it is what was wanted; fields of want that are empty are not compared. The part is
// gone then; after an error it is as it was.
func (p *part) commit(want trivet.BlobRef) (trivet.BlobRef, error) {
	ref, table := p.end()
	if err := compare(want, ref); err != nil {
		return ref, err
	}
	d, err := ParseDigest(ref.Digest)
	if err != nil {
		return ref, err
	}
	if err := p.store.keep(p.file, d, table); err != nil {
		return ref, p.store.full(err)
	}
	return ref, nil
}

// keep puts the table beside where the blob will be, then the blob in its place, each whole and synced.
func (s *Store) keep(f *os.File, d Digest, table []byte) error {
	if err := f.Sync(); err != nil {
		return err
	}
	s.names.Lock()
	defer s.names.Unlock()
	temp, err := os.OpenFile(f.Name()+tableSuffix+putSuffix, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = temp.Write(table)
	if err = errors.Join(err, temp.Sync(), temp.Close()); err == nil {
		err = os.Rename(temp.Name(), s.path(d)+tableSuffix)
	}
	if err != nil {
		return errors.Join(err, os.Remove(temp.Name()))
	}
	if err := os.Rename(f.Name(), s.path(d)); err != nil {
		return err
	}
	return errors.Join(s.syncDir(), f.Close())
}

// drop removes the part.
func (p *part) drop() error { return errors.Join(p.file.Close(), os.Remove(p.file.Name())) }

func compare(want, got trivet.BlobRef) error {
	switch {
	case want.Bytes != 0 && want.Bytes != got.Bytes:
		return fmt.Errorf("%w: %d bytes came, %d were announced", trivet.ErrInvalid, got.Bytes, want.Bytes)
	case want.Digest != "" && want.Digest != got.Digest:
		return fmt.Errorf("%w: the digest is %s, not %s", trivet.ErrInvalid, got.Digest, want.Digest)
	case want.Chunks != "" && want.Chunks != got.Chunks:
		return fmt.Errorf("%w: the chunk table's digest is %s, not %s", trivet.ErrInvalid, got.Chunks, want.Chunks)
	}
	return nil
}
