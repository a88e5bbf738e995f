package archive

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"os"
)

// File is a backup file that is open. Its size is that of a whole one.
type File struct {
	header
	f *os.File
}

// Open opens a file and checks its manifest and its size. It does not read the rest.
func Open(path string) (*File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	h, err := readHeader(f)
	if err == nil {
		err = checkSize(f, h)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return &File{*h, f}, nil
}

func checkSize(f *os.File, h *header) error {
	info, err := f.Stat()
	switch {
	case err != nil:
		return err
	case info.Size() < h.size():
		return fmt.Errorf("%w: it has %d of %d bytes", ErrTruncated, info.Size(), h.size())
	case info.Size() > h.size():
		return fmt.Errorf("%w: %d bytes follow its end", ErrDamaged, info.Size()-h.size())
	}
	return nil
}

// Close closes the file.
func (f *File) Close() error { return f.f.Close() }

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
	return newPartReader(name, io.NewSectionReader(f.f, at, p.Bytes), p)
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
// begun is called with the manifest and the size of the file before anything is written.
func Copy(w io.Writer, r io.Reader, begun func(m *Manifest, size int64) error) (*Manifest, error) {
	h, err := readHeader(r)
	if err != nil {
		return nil, err
	}
	if err := begun(&h.Manifest, h.size()); err != nil {
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
