package oci

import (
	"errors"
	"fmt"
	"io"

	"github.com/trivet-project/trivet"
)

// Space bounds what is unpacked: a small image may describe files of any size and number, and what is unpacked into
// memory would end the machine. A Space is for one image or archive.
type Space struct {
	Bytes   int64 // of files, with what each of them needs by itself
	Entries int64 // files, directories and links
}

// OnDisk is the space of a file system that has a size of its own.
var OnDisk = Space{Bytes: 1 << 62, Entries: MaxEntries}

// entryBytes is what a file needs besides its content.
const entryBytes = 4 << 10

// ErrBomb is the error of an image or archive that unpacks to more than its Space. It is a [trivet.ErrTooLarge].
var ErrBomb = fmt.Errorf("%w: it unpacks to more than there is space for", trivet.ErrTooLarge)

func (s *Space) take(entries, bytes int64) error {
	s.Entries -= entries
	s.Bytes -= bytes
	if s.Entries < 0 || s.Bytes < 0 {
		return ErrBomb
	}
	return nil
}

// copy writes content to a file within the space. The holes of a sparse file count: they are written as zeros.
func (s *Space) copy(w io.Writer, content io.Reader) error {
	n, err := io.Copy(w, io.LimitReader(content, s.Bytes+1))
	return errors.Join(err, s.take(0, n))
}
