package block

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// directAlign is what buffers and offsets of direct reads and writes are multiples of: that of every block size.
const directAlign = 4096

// OpenDirect opens a disk whose reads come from the disk and not from the page cache, and whose writes go to it. For
// writing a node is opened exclusively: one that is in use fails. Offsets, and the buffers, which are from [Aligned],
// must be multiples of 4096 bytes, except at the end. A file is read by the page cache: see [Device.Uncache].
func OpenDirect(path string, writes bool) (*Device, error) {
	flags := os.O_RDONLY
	if writes {
		flags = os.O_RDWR | unix.O_EXCL
	}
	d, err := open(path, flags)
	if err != nil || !d.isNode {
		return d, err
	}
	current, err := unix.FcntlInt(d.file.Fd(), unix.F_GETFL, 0)
	if err == nil {
		_, err = unix.FcntlInt(d.file.Fd(), unix.F_SETFL, current|unix.O_DIRECT)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read %s directly: %w", path, err), d.Close())
	}
	return d, nil
}

// Aligned returns a buffer for direct reads and writes.
func Aligned(n int) []byte {
	b := make([]byte, n+directAlign)
	skip := directAlign - int(uintptr(unsafe.Pointer(&b[0]))%directAlign)
	return b[skip : skip+n : skip+n]
}

// Uncache drops a range from the page cache, so that it is read from the disk.
func (d *Device) Uncache(off, n int64) error {
	return unix.Fadvise(int(d.file.Fd()), d.offset+off, n, unix.FADV_DONTNEED)
}
