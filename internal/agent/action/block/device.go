// Package block is disks and partitions as the actions see them: block devices of the kernel and, in the lab and in
// tests, ordinary files.
package block

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/trivet-project/trivet/internal/agent/action/gpt"
)

// Device is an open disk or partition. Offsets are relative to it.
type Device struct {
	file   *os.File
	path   string
	isNode bool  // a block device of the kernel
	offset int64 // start of a partition without a node in its disk
	size   int64
	sector int64
}

// ErrInUse means that a device is mounted or opened exclusively.
var ErrInUse = errors.New("is in use")

// Open opens a disk or a partition's node for reading and writing, or a file as one. A node is opened exclusively: a
// mounted one fails.
func Open(path string) (*Device, error) { return open(path, os.O_RDWR|unix.O_EXCL) }

// OpenReadOnly opens a disk, partition or file for reading, even if it is in use.
func OpenReadOnly(path string) (*Device, error) { return open(path, os.O_RDONLY) }

func open(path string, flags int) (*Device, error) {
	fi, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	d := &Device{path: path, sector: 512, isNode: fi.Mode()&fs.ModeDevice != 0 && fi.Mode()&fs.ModeCharDevice == 0}
	if !d.isNode && !fi.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is neither a block device nor a file", path)
	}
	if d.file, err = os.OpenFile(path, flags, 0); err != nil {
		if errors.Is(err, unix.EBUSY) {
			return nil, fmt.Errorf("%s %w", path, ErrInUse)
		}
		return nil, err
	}
	if err := d.measure(); err != nil {
		return nil, errors.Join(fmt.Errorf("measure %s: %w", path, err), d.file.Close())
	}
	return d, nil
}

func (d *Device) measure() (err error) {
	if d.size, err = d.file.Seek(0, io.SeekEnd); err != nil || !d.isNode {
		return err
	}
	sector, err := unix.IoctlGetInt(int(d.file.Fd()), unix.BLKSSZGET)
	d.sector = int64(sector)
	return err
}

// Path returns the device's node or file.
func (d *Device) Path() string {
	if d.offset > 0 {
		return fmt.Sprintf("%s at %d", d.path, d.offset)
	}
	return d.path
}

// File returns the underlying file and the device's offset in it.
func (d *Device) File() (f *os.File, offset int64) { return d.file, d.offset }

// IsNode reports whether this is a block device of the kernel.
func (d *Device) IsNode() bool { return d.isNode }

// Size is the size in bytes.
func (d *Device) Size() int64 { return d.size }

// Sector is the size of a logical block in bytes.
func (d *Device) Sector() int64 { return d.sector }

// ReadAt reads as io.ReaderAt does.
func (d *Device) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 || off >= d.size {
		return 0, io.EOF
	}
	n, err := d.file.ReadAt(p[:min(int64(len(p)), d.size-off)], d.offset+off)
	if err == nil && n < len(p) {
		err = io.EOF
	}
	return n, err
}

// WriteAt writes as io.WriterAt does; beyond the end is [unix.ENOSPC].
func (d *Device) WriteAt(p []byte, off int64) (int, error) {
	if off < 0 || off+int64(len(p)) > d.size {
		return 0, fmt.Errorf("write %d bytes at %d of %s, which has %d: %w", len(p), off, d.Path(), d.size, unix.ENOSPC)
	}
	return d.file.WriteAt(p, d.offset+off)
}

// Sync flushes writes to stable storage.
func (d *Device) Sync() error { return d.file.Sync() }

// Close closes the device.
func (d *Device) Close() error { return d.file.Close() }

// Discard makes the device discard a range. Devices without support return [unix.EOPNOTSUPP]. The content of the range
// is undefined afterwards.
func (d *Device) Discard(off, n int64) error {
	if !d.isNode {
		return d.punch(off, n)
	}
	return d.rangeIoctl(unix.BLKDISCARD, off, n)
}

// Zero makes a range read as zeros, by the device's own command where it has one.
func (d *Device) Zero(off, n int64) error {
	if !d.isNode {
		return d.punch(off, n)
	}
	return d.rangeIoctl(unix.BLKZEROOUT, off, n)
}

func (d *Device) punch(off, n int64) error {
	return unix.Fallocate(int(d.file.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, d.offset+off, n)
}

func (d *Device) rangeIoctl(request uintptr, off, n int64) error {
	arg := [2]uint64{uint64(d.offset + off), uint64(n)}
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, d.file.Fd(), request, uintptr(unsafe.Pointer(&arg)))
	if errno != 0 {
		return errno
	}
	return nil
}

// Reread makes the kernel read the partition table. The partitions' nodes exist when it returns: devtmpfs creates them
// before the ioctl returns.
func (d *Device) Reread(ctx context.Context) error {
	if !d.isNode {
		return nil
	}
	for {
		err := unix.IoctlSetInt(int(d.file.Fd()), unix.BLKRRPART, 0)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, unix.EINVAL): // a device without partitions, such as a loop device made without them
			return fmt.Errorf("%s does not support partitions: %w", d.path, err)
		case !errors.Is(err, unix.EBUSY):
			return fmt.Errorf("read the partition table of %s again: %w", d.path, err)
		}
		select { // a process has a partition open; there is no event to wait for
		case <-ctx.Done():
			return fmt.Errorf("a partition of %s %w: %w", d.path, ErrInUse, context.Cause(ctx))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Table reads the device's partition table.
func (d *Device) Table() (*gpt.Table, error) { return gpt.Read(d, d.size, d.sector) }

// SecureDiscard is Discard that also erases copies of the range, as cards of MMC and SD do it.
func (d *Device) SecureDiscard(off, n int64) error {
	if !d.isNode {
		return unix.EOPNOTSUPP
	}
	return d.rangeIoctl(unix.BLKSECDISCARD, off, n)
}
