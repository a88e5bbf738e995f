package image

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"path"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/image/qcow2"
)

// MaxRaw bounds the disk inside a file: a file of a few KiB may describe one of any size.
const MaxRaw = qcow2.MaxSize

// diskRaw returns the disk in an archive that begins with a file of that name, and its size; nil for other archives.
// At the end of the disk it reads the rest of the archive, which must have nothing else.
func diskRaw(archive io.Reader) (disk io.Reader, size int64, err error) {
	t := tar.NewReader(archive)
	name, h, err := nextFile(t)
	switch {
	case errors.Is(err, tar.ErrHeader), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return nil, 0, nil // not a disk
	case err != nil || name != DiskRaw || h.Typeflag == tar.TypeDir:
		return nil, 0, err
	case h.Size == 0:
		return nil, 0, fmt.Errorf("%w: %s in the archive is empty", trivet.ErrInvalid, h.Name)
	case h.Size > MaxRaw:
		return nil, 0, fmt.Errorf("%w: %w: %s in the archive has %d bytes; at most %d", trivet.ErrInvalid,
			trivet.ErrTooLarge, h.Name, h.Size, int64(MaxRaw))
	}
	return &lastFile{tar: t, archive: archive}, h.Size, nil
}

// nextFile returns the next entry that is not the archive's own directory.
func nextFile(t *tar.Reader) (name string, h *tar.Header, err error) {
	for name == "" && err == nil {
		if h, err = t.Next(); err == nil {
			name = path.Clean("/" + h.Name)[1:]
		}
	}
	return name, h, err
}

// lastFile reads the current entry of an archive, which must be the last one.
type lastFile struct {
	tar     *tar.Reader
	archive io.Reader
}

func (f *lastFile) Read(p []byte) (int, error) {
	n, err := f.tar.Read(p)
	if err == io.EOF {
		err = f.end()
	}
	return n, cutOff(err)
}

// end reads the archive to its end, so that all of it is verified.
func (f *lastFile) end() error {
	name, _, err := nextFile(f.tar)
	switch {
	case err == nil:
		return &trivet.Error{Op: "read image", Err: fmt.Errorf("%w: the archive has %q beside %s", trivet.ErrInvalid,
			name, DiskRaw), Hint: "unpack it and import the disk, or import it as a file tree by --format tar"}
	case !errors.Is(err, io.EOF):
		return err
	}
	if _, err := io.Copy(io.Discard, f.archive); err != nil {
		return err
	}
	return io.EOF
}

// cutOff returns the error of an archive's defects.
func cutOff(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, tar.ErrHeader) {
		return fmt.Errorf("%w: the archive is cut off or damaged: %w", trivet.ErrInvalid, err)
	}
	return err
}
