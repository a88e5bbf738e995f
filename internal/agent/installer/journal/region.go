package journal

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Bounds of a region in bytes. A file is made sparse with DefaultBytes.
const (
	DefaultBytes = 8 << 20
	minBytes     = 64 << 10
)

// region is the two halves on a file or block device, and where the next line goes.
type region struct {
	file  *os.File
	half  int64  // bytes of one half
	gen   uint64 // generation of the half in use, which is number gen%2
	end   int64  // where in it the next line goes
	chain uint32 // checksum of the last line
}

func openRegion(path string) (*region, []Entry, error) {
	f, err := openFile(path)
	if err != nil {
		return nil, nil, err
	}
	r := &region{file: f}
	entries, err := r.load()
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return r, entries, nil
}

func openFile(path string) (*os.File, error) {
	flags := os.O_RDWR
	if !strings.HasPrefix(path, "/dev/") {
		flags |= os.O_CREATE
	}
	f, err := os.OpenFile(path, flags, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("it is in use by another agent: %w", err), f.Close())
	}
	return f, nil
}

// load finds the half in use and reads it.
func (r *region) load() ([]Entry, error) {
	size, err := r.measure()
	if err != nil {
		return nil, err
	}
	r.half = size / 2
	bodies, foreign, err := r.readHalves()
	if err != nil {
		return nil, err
	}
	best := -1
	for i, b := range bodies {
		if gen, ok := parseHeader(b); ok && gen > r.gen && gen%2 == uint64(i) {
			best, r.gen = i, gen
		}
	}
	if best < 0 {
		if foreign {
			return nil, fmt.Errorf("contains other data; a journal needs a blank file or device: %w", fs.ErrExist)
		}
		return nil, r.rewrite(nil)
	}
	entries, end, chain := parse(bodies[best], r.gen)
	r.end, r.chain = end, chain
	return entries, nil
}

// measure returns the region's size; a new file is extended to it.
func (r *region) measure() (int64, error) {
	size, err := r.file.Seek(0, io.SeekEnd)
	if err != nil {
		return 0, err
	}
	if size == 0 {
		size = DefaultBytes
		if err := r.file.Truncate(size); err != nil {
			return 0, err
		}
	}
	if size < minBytes {
		return 0, fmt.Errorf("has %d bytes; a journal needs %d", size, minBytes)
	}
	return min(size, DefaultBytes), nil
}

// readHalves also reports whether there is data that no journal wrote.
func (r *region) readHalves() (bodies [2][]byte, foreign bool, err error) {
	for i := range bodies {
		b := make([]byte, r.half)
		if _, err := r.file.ReadAt(b, int64(i)*r.half); err != nil {
			return bodies, false, err
		}
		bodies[i] = b
		head := b[:min(len(b), 4096)]
		if !bytes.HasPrefix(head, []byte(magic)) && len(bytes.Trim(head, "\x00")) > 0 {
			foreign = true
		}
	}
	return bodies, foreign, nil
}

// append writes one line after the last one. A line that fails is overwritten by the next.
func (r *region) append(e Entry, sync bool) error {
	line, chain, err := encode(e, r.chain)
	if err != nil {
		return err
	}
	if r.end+int64(len(line)) > r.half {
		return ErrFull
	}
	if _, err := r.file.WriteAt(line, r.base(r.gen)+r.end); err != nil {
		return err
	}
	if sync {
		if err := unix.Fdatasync(int(r.file.Fd())); err != nil {
			return err
		}
	}
	r.end, r.chain = r.end+int64(len(line)), chain
	return nil
}

// rewrite writes the entries to the other half and makes it the one in use. A crash during it leaves the old half in
// use: the header is written last.
func (r *region) rewrite(entries []Entry) error {
	gen := r.gen + 1
	header, chain := encodeHeader(gen)
	body := bytes.Clone(header)
	for _, e := range entries {
		line, next, err := encode(e, chain)
		if err != nil {
			return err
		}
		body, chain = append(body, line...), next
	}
	if int64(len(body)) > r.half {
		return ErrFull
	}
	if err := r.writeSynced(body[len(header):], r.base(gen)+int64(len(header))); err != nil {
		return err
	}
	if err := r.writeSynced(header, r.base(gen)); err != nil {
		return err
	}
	r.gen, r.end, r.chain = gen, int64(len(body)), chain
	return nil
}

func (r *region) writeSynced(b []byte, at int64) error {
	if _, err := r.file.WriteAt(b, at); err != nil {
		return err
	}
	return r.file.Sync()
}

func (r *region) base(gen uint64) int64 { return int64(gen%2) * r.half }

func (r *region) close() error { return r.file.Close() }
