package image

import (
	"bytes"
	"fmt"
	"io"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/image/docker"
	"github.com/trivet-project/trivet/internal/image/qcow2"
)

// Info is the result of Inspect.
type Info struct {
	Compression string // of the file
	Within      string // the content is not the file itself: Qcow2, DiskRaw or DockerArchive
	Format      string // of the content
	RawBytes    int64  // of the content; 0 if it is known only after decompressing all of it
	Content     string // of a raw image: "gpt", "mbr", the type of its file system, or "" if it is not known
	Parts       []Part // of a raw image, by number
}

// What the content of an image is taken out of.
const (
	Qcow2   = "qcow2"    // a disk of QEMU
	DiskRaw = "disk.raw" // a tar archive of this file only, as Debian's images for clouds are
	// DockerArchive is a container image as Docker wrote it before version 25; its content is an OCI layout.
	DockerArchive = "docker archive"
)

// headBytes are read of the content: enough for a partition table of any kind and the file systems' first blocks.
const headBytes = 128 << 10

// Inspect reports how a file is compressed and what it contains. A file that cannot be installed
// is [trivet.ErrInvalid], with a hint if it can be converted.
func Inspect(r io.ReaderAt, size int64) (Info, error) {
	info, err := inspect(r, size)
	if err != nil {
		return Info{}, fmt.Errorf("inspect image: %w", err)
	}
	return info, nil
}

func inspect(r io.ReaderAt, size int64) (info Info, err error) {
	var magic [6]byte
	if n, err := r.ReadAt(magic[:], 0); err != nil && (n == 0 || err != io.EOF) {
		if err == io.EOF {
			err = fmt.Errorf("%w: it is empty", trivet.ErrInvalid)
		}
		return info, err
	}
	info.Compression = compressionOf(magic[:])
	open := func() (io.ReadCloser, error) {
		file := io.NewSectionReader(r, 0, size)
		if info.Compression == None {
			return seekable{file}, nil
		}
		return Decompress(file, info.Compression)
	}
	head, err := headOf(open)
	if err != nil {
		return info, err
	}
	if c := compressionOf(head); info.Compression != None && c != None {
		return info, fmt.Errorf("%w: it is compressed twice, by %s and %s", trivet.ErrInvalid, info.Compression, c)
	}
	switch info.Compression {
	case None:
		info.RawBytes = size
	case Zstd:
		info.RawBytes, err = zstdSize(r, size)
	}
	switch {
	case err != nil:
		return info, err
	case bytes.HasPrefix(head, []byte(qcow2.Magic)):
		err = info.inQcow2(r, size)
		return info, err
	case isTar(head):
		if err = info.inTar(open); err == nil && info.Within == DockerArchive && info.Compression == None {
			_, err = docker.Open(r, size)
		}
		return info, err
	}
	return info, info.raw(head)
}

// seekable is a file that is not compressed: what an archive's reader skips is not read.
type seekable struct{ *io.SectionReader }

// Close does nothing.
func (seekable) Close() error { return nil }

// raw is a disk of which the first bytes are known.
func (i *Info) raw(head []byte) error {
	i.Format = Raw
	i.Content, i.Parts = contentOf(head)
	if err := check(head); err != nil {
		return err
	}
	return refuseText(head)
}

// within looks at a disk inside a file.
func (i *Info) within(what string, size int64, content io.Reader) error {
	i.Within, i.RawBytes = what, size
	head, err := io.ReadAll(io.LimitReader(content, headBytes))
	if err != nil {
		return err
	}
	return i.raw(head)
}

// inQcow2 looks at a disk of QEMU. Inside a compressed file that has to wait until that is decompressed.
func (i *Info) inQcow2(r io.ReaderAt, size int64) error {
	if i.Compression != None {
		i.Within, i.Format, i.RawBytes = Qcow2, Raw, 0
		return nil
	}
	disk, err := qcow2.Open(r, size)
	if err != nil {
		return err
	}
	return i.within(Qcow2, disk.Size(), disk.Reader())
}

// inTar looks at an archive: a file tree, an OCI layout, or a disk.
func (i *Info) inTar(open func() (io.ReadCloser, error)) error {
	content, err := open()
	if err != nil {
		return err
	}
	defer content.Close()
	disk, size, err := diskRaw(content)
	if err == nil && disk != nil {
		return i.within(DiskRaw, size, disk)
	}
	i.Format = Tar
	if err == nil {
		i.Format, i.Within, err = tarFormat(open)
	}
	if i.Within == DockerArchive {
		i.RawBytes = 0
	}
	return err
}

func headOf(open func() (io.ReadCloser, error)) ([]byte, error) {
	content, err := open()
	if err != nil {
		return nil, err
	}
	defer content.Close()
	head, err := io.ReadAll(io.LimitReader(content, headBytes))
	if err == nil && len(head) == 0 {
		err = fmt.Errorf("%w: it is empty", trivet.ErrInvalid)
	}
	return head, err
}

// isTar recognises POSIX and GNU archives (pax, "ustar interchange format").
func isTar(head []byte) bool {
	return len(head) >= 512 && bytes.Equal(head[257:262], []byte("ustar"))
}
