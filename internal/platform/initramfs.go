package platform

import (
	"compress/gzip"
	"context"
	"io"
	"maps"
	"path"
	"slices"

	"github.com/klauspost/compress/zstd"
	"github.com/u-root/u-root/pkg/cpio"
)

// files is the content of an initramfs, by path without a leading slash. The parents of a file are added with it.
type files map[string]cpio.Record

func (f files) put(r cpio.Record) {
	f[r.Name] = r
	if dir := path.Dir(r.Name); dir != "." {
		f.directory(dir)
	}
}

func (f files) add(name string, mode uint64, data []byte) {
	f.put(cpio.StaticFile(name, string(data), mode))
}
func (f files) link(name, target string) { f.put(cpio.Symlink(name, target)) }
func (f files) has(name string) bool     { _, ok := f[name]; return ok }

func (f files) directory(name string) {
	if !f.has(name) {
		f.put(cpio.Directory(name, 0o755))
	}
}

func (f files) device(name string, perm, major, minor uint64) {
	f.put(cpio.CharDev(name, perm, major, minor))
}

// writeTo writes the compressed archive and returns its size before compression. Entries are sorted by path, so a
// directory comes before its content; times, owners and inode numbers are fixed, so equal files produce equal bytes.
func (f files) writeTo(ctx context.Context, w io.Writer, c compression) (int64, error) {
	z, err := c(w)
	if err != nil {
		return 0, err
	}
	n := &counter{w: z, ctx: ctx}
	archive := cpio.Newc.Writer(n)
	for i, name := range slices.Sorted(maps.Keys(f)) {
		r := cpio.MakeReproducible(f[name])
		r.Ino = uint64(i + 1)
		if err := archive.WriteRecord(r); err != nil {
			return 0, err
		}
	}
	if err := cpio.WriteTrailer(archive); err != nil {
		return 0, err
	}
	return n.n, z.Close()
}

// compression compresses an archive.
type compression func(io.Writer) (io.WriteCloser, error)

// The kernel reads one frame of zstd for each archive, with a window of up to 128 MiB. One goroutine: the result must
// not depend on the host.

func zstdBest(w io.Writer) (io.WriteCloser, error) {
	return zstd.NewWriter(w, zstd.WithEncoderLevel(zstd.SpeedBestCompression), zstd.WithEncoderConcurrency(1),
		zstd.WithWindowSize(16<<20))
}

// zstdSmall is for heads as well: it needs 10 MiB of memory, and a second for a program that zstdBest needs half a
// minute for. The result is an eighth larger.
func zstdSmall(w io.Writer) (io.WriteCloser, error) {
	return zstd.NewWriter(w, zstd.WithEncoderLevel(zstd.SpeedDefault), zstd.WithEncoderConcurrency(1),
		zstd.WithWindowSize(4<<20))
}

func gzipBest(w io.Writer) (io.WriteCloser, error) {
	return gzip.NewWriterLevel(w, gzip.BestCompression)
}

// counter counts the bytes written, and returns an error when the context ends.
type counter struct {
	w   io.Writer
	n   int64
	ctx context.Context
}

func (c *counter) Write(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}
