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

// part is an incomplete blob: a file and the digests of its content.
type part struct {
	store *Store
	file  *os.File
	*sums
	diskErr error // the file may lack bytes that are in the digests
}

const (
	pieceBytes = 1 << 20 // read, hashed and written at once
	pieces     = 3       // in memory
	checkEvery = 64 << 20
)

func (s *Store) newPart(name string) (*part, error) {
	f, err := os.OpenFile(filepath.Join(s.dir, name), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, s.diskError(err)
	}
	return &part{store: s, file: f, sums: newSums()}, nil
}

// readFrom appends r up to its end. Bytes before an error are kept and included in p.size. The caller's goroutine
// reads; another one hashes and writes, and has ended when readFrom returns.
func (p *part) readFrom(ctx context.Context, r io.Reader) error {
	free, full := make(chan []byte, pieces), make(chan []byte, pieces)
	for range pieces {
		free <- make([]byte, pieceBytes)
	}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		p.diskErr = p.write(full, free)
	}()
	err := fill(ctx, r, p.store.opts.MaxBytes-p.size, free, full, stopped)
	close(full)
	<-stopped
	if p.diskErr != nil {
		return p.diskErr
	}
	return err
}

// fill reads pieces until r ends, or writing has stopped.
func fill(ctx context.Context, r io.Reader, limit int64, free <-chan []byte, full chan<- []byte,
	stopped <-chan struct{}) error {
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
		if limit -= int64(n); limit < 0 {
			return trivet.ErrTooLarge
		}
		full <- b[:n] // never blocks
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("%w: input ended early: %w", trivet.ErrInvalid, err)
		}
	}
}

// readFull is io.ReadFull, but returns io.EOF for the end of the input and io.ErrUnexpectedEOF only if r does.
func readFull(r io.Reader, b []byte) (n int, err error) {
	for n < len(b) && err == nil {
		var m int
		m, err = r.Read(b[n:])
		n += m
	}
	return n, err
}

// write hashes and writes pieces concurrently until full is closed or one fails.
func (p *part) write(full <-chan []byte, free chan<- []byte) error {
	for b := range full {
		before := p.size
		if before/checkEvery != (before+int64(len(b)))/checkEvery || before == 0 {
			if err := p.store.checkSpace(int64(len(b))); err != nil {
				return err
			}
		}
		hashed := make(chan struct{})
		go func() { p.add(b); close(hashed) }()
		_, err := p.file.WriteAt(b, before)
		<-hashed
		if err != nil {
			return p.store.diskError(err)
		}
		// Start the writeback now, so that the sync at the end is short. That sync reports errors.
		_ = unix.SyncFileRange(int(p.file.Fd()), before, int64(len(b)), unix.SYNC_FILE_RANGE_WRITE)
		free <- b[:cap(b)]
	}
	return nil
}

// commit turns the part into a blob if it matches want, whose empty fields are not compared. After an error the part is
// unchanged.
func (p *part) commit(want trivet.BlobRef) (trivet.BlobRef, error) {
	ref, table := p.end()
	if err := compare(want, ref); err != nil {
		return ref, err
	}
	d, err := ParseDigest(ref.Digest)
	if err != nil {
		return ref, err
	}
	if err := p.store.add(p.file, d, table); err != nil {
		return ref, p.store.diskError(err)
	}
	return ref, nil
}

// add adds a complete file as a blob: it renames first the chunk table and then the blob into place, both synced.
func (s *Store) add(f *os.File, d Digest, table []byte) error {
	if err := f.Sync(); err != nil {
		return err
	}
	s.names.Lock()
	defer s.names.Unlock()
	if err := s.replace(d.hex()+tableSuffix, table); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), s.path(d)); err != nil {
		return err
	}
	s.setRepaired(d)
	return errors.Join(s.syncDir(), f.Close())
}

// replace writes a file of the directory, synced, in the place of the one before. Its rename is not synced.
func (s *Store) replace(name string, content []byte) error {
	path := filepath.Join(s.dir, name)
	temp, err := os.OpenFile(path+putSuffix, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = temp.Write(content)
	if err = errors.Join(err, temp.Sync(), temp.Close()); err == nil {
		err = os.Rename(temp.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(temp.Name()))
	}
	return nil
}

// drop removes the part.
func (p *part) drop() error { return errors.Join(p.file.Close(), os.Remove(p.file.Name())) }

func compare(want, got trivet.BlobRef) error {
	switch {
	case want.Bytes != 0 && want.Bytes != got.Bytes:
		return fmt.Errorf("%w: received %d bytes, want %d", trivet.ErrInvalid, got.Bytes, want.Bytes)
	case want.Digest != "" && want.Digest != got.Digest:
		return fmt.Errorf("%w: the digest is %s, not %s", trivet.ErrInvalid, got.Digest, want.Digest)
	case want.Chunks != "" && want.Chunks != got.Chunks:
		return fmt.Errorf("%w: the chunk table's digest is %s, not %s", trivet.ErrInvalid, got.Chunks, want.Chunks)
	}
	return nil
}
