package image

import (
	"errors"
	"fmt"
	"io"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/image/docker"
	"github.com/trivet-project/trivet/internal/image/qcow2"
)

// Converts reports whether the file is stored as another one: its content, compressed by zstd. What is compressed by xz
// is, as machines decompress zstd ten times as fast.
func (i Info) Converts() bool { return i.Within != "" || i.Compression == XZ }

// AnyOrder reports whether the file is read in no order when it is converted, so that it must not be compressed.
func (i Info) AnyOrder() bool { return i.Within == Qcow2 || i.Within == DockerArchive }

// Source is what a file is read from: in its order, which may begin again, or anywhere.
type Source interface {
	io.ReadSeeker
	io.ReaderAt
}

// File is an image to convert.
type File struct {
	Source   Source
	Bytes    int64
	Info     Info
	Digest   *Digest          // of the file; nil: not known
	Progress func(done int64) // called with how much of Work is done; may be nil
}

// Work returns how much a conversion reads, in bytes; of a docker archive about as much.
func (f *File) Work() int64 {
	if f.Info.Within == Qcow2 {
		return f.Info.RawBytes
	}
	return f.Bytes
}

// Content returns the content of a file, from its beginning. The last read fails where the file has another digest.
// The digest of a file that is read in no order is not verified here.
func (f *File) Content() (io.ReadCloser, error) {
	if f.Info.AnyOrder() {
		content, err := f.open()
		if err != nil {
			return nil, err
		}
		return io.NopCloser(f.counted(content)), nil
	}
	if _, err := f.Source.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	src := f.counted(f.Source)
	if f.Digest != nil {
		src = f.Digest.Verify(src)
	}
	content, err := Decompress(src, f.Info.Compression)
	if err != nil || f.Info.Within != DiskRaw {
		return content, err
	}
	disk, _, err := diskRaw(content)
	if err == nil && disk == nil {
		err = fmt.Errorf("%w: the archive has changed", trivet.ErrInvalid)
	}
	if err != nil {
		return nil, errors.Join(err, content.Close())
	}
	return readCloser{disk, content}, nil
}

// open returns the content of a file that is read in no order.
func (f *File) open() (io.Reader, error) {
	if f.Info.Within == Qcow2 {
		disk, err := qcow2.Open(f.Source, f.Bytes)
		if err != nil {
			return nil, err
		}
		return disk.Reader(), nil
	}
	archive, err := docker.Open(f.Source, f.Bytes)
	if err != nil {
		return nil, err
	}
	return archive.Layout()
}

type readCloser struct {
	io.Reader
	io.Closer
}

func (f *File) counted(r io.Reader) io.Reader {
	if f.Progress == nil {
		return r
	}
	return &counter{r: r, progress: f.Progress}
}

type counter struct {
	r        io.Reader
	done     int64
	progress func(int64)
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.done += int64(n)
	c.progress(c.done)
	return n, err
}
