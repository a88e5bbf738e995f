package archive

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
)

// Source is what a file is read from.
type Source interface {
	Size() int64
	// Range returns a reader of n bytes from an offset, within the size.
	Range(at, n int64) io.Reader
	Close() error
}

// File is a backup file that is open. Its size is that of a whole one.
type File struct {
	header
	from Source
}

// Open checks the manifest of a file and its size. It does not read the rest. The source is closed with the file, or by
// an error.
func Open(from Source) (*File, error) {
	h, err := readHeader(from.Range(0, from.Size()))
	if err == nil {
		err = h.checkSize(from.Size())
	}
	if err != nil {
		from.Close()
		return nil, err
	}
	return &File{*h, from}, nil
}

func (h *header) checkSize(size int64) error {
	switch {
	case size < h.size():
		return fmt.Errorf("%w: it has %d of %d bytes", ErrTruncated, size, h.size())
	case size > h.size():
		return fmt.Errorf("%w: %d bytes follow its end", ErrDamaged, size-h.size())
	}
	return nil
}

// Close closes the file.
func (f *File) Close() error { return f.from.Close() }

// Size returns the size of the file.
func (f *File) Size() int64 { return f.size() }

// Verify returns an error if the manifest was not written by the holder of the key of a MAC.
func (f *File) Verify(mac MAC) error { return f.verify(mac) }

// KeysPart returns the keys as written, which are encrypted.
func (f *File) KeysPart() ([]byte, error) {
	return io.ReadAll(f.part("keys", int64(len(f.raw)), f.Keys))
}

// StorePart returns the snapshot of the store. Its last read fails if it is not what was written.
func (f *File) StorePart() io.Reader {
	return f.part("store", int64(len(f.raw))+f.Keys.Bytes, f.Store)
}

func (f *File) part(name string, at int64, p Part) io.Reader {
	return newPartReader(name, f.from.Range(at, p.Bytes), p)
}

// partReader reads a part and compares its size and digest at the end.
type partReader struct {
	name string
	r    io.Reader
	want Part
	left int64
	sum  hash.Hash
}

func newPartReader(name string, r io.Reader, p Part) *partReader {
	return &partReader{name: name, r: r, want: p, left: p.Bytes, sum: sha256.New()}
}

func (p *partReader) Read(b []byte) (int, error) {
	if p.left == 0 {
		if hex.EncodeToString(p.sum.Sum(nil)) != p.want.SHA256 {
			return 0, fmt.Errorf("%w: the %s does not have its digest", ErrDamaged, p.name)
		}
		return 0, io.EOF
	}
	n, err := p.r.Read(b[:min(int64(len(b)), p.left)])
	p.sum.Write(b[:n])
	p.left -= int64(n)
	if err != nil && p.left > 0 {
		return n, cutShort(err)
	}
	return n, nil
}

// Copy copies a file from a stream, which has nothing after it, and verifies the digests of its parts meanwhile.
// begin is called with the manifest and the size of the file, and returns where to write it.
func Copy(r io.Reader, begin func(m *Manifest, size int64) (io.Writer, error)) (*Manifest, error) {
	h, err := readHeader(r)
	if err != nil {
		return nil, err
	}
	w, err := begin(&h.Manifest, h.size())
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(h.raw); err != nil {
		return nil, err
	}
	for _, p := range []*partReader{newPartReader("keys", r, h.Keys), newPartReader("store", r, h.Store)} {
		if _, err := io.Copy(w, p); err != nil {
			return nil, err
		}
	}
	if n, _ := io.ReadFull(r, make([]byte, 1)); n > 0 {
		return nil, fmt.Errorf("%w: bytes follow its end", ErrDamaged)
	}
	return &h.Manifest, nil
}
