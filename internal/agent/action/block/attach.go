package block

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Attach returns the node of a partition of a disk, or of the whole disk for number 0, for programs and for mount(2).
// Files, and partitions that the kernel has no nodes for, get a loop device, which requires root. The device is not
// opened; release frees the loop device once nothing uses it.
func Attach(path string, n int) (node string, release func() error, err error) {
	d, err := OpenPart(path, n)
	if err != nil {
		return "", nil, err
	}
	defer d.Close()
	if d.isNode && d.offset == 0 {
		return d.path, func() error { return nil }, nil
	}
	l, err := d.loop()
	if err != nil {
		return "", nil, fmt.Errorf("attach %s to a loop device: %w", d.Path(), err)
	}
	return l.Name(), l.Close, nil
}

// loop creates a loop device that vanishes when the last one closes it.
func (d *Device) loop() (*os.File, error) {
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer control.Close()
	config := unix.LoopConfig{Fd: uint32(d.file.Fd()), Size: uint32(d.sector)}
	config.Info.Offset, config.Info.Sizelimit = uint64(d.offset), uint64(d.size)
	config.Info.Flags = unix.LO_FLAGS_AUTOCLEAR
	copy(config.Info.File_name[:len(config.Info.File_name)-1], d.path)
	for {
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, err
		}
		l, err := os.OpenFile(fmt.Sprintf("/dev/loop%d", n), os.O_RDWR, 0)
		if err != nil {
			return nil, err
		}
		err = unix.IoctlLoopConfigure(int(l.Fd()), &config)
		if err == nil {
			return l, nil
		}
		l.Close()
		if !errors.Is(err, unix.EBUSY) { // EBUSY: another process took it first
			return nil, err
		}
	}
}

// Node returns the kernel's node of a partition of a disk, or of the whole disk for number 0, whether it is in use or
// not.
func Node(path string, n int) (string, error) {
	if n == 0 {
		return path, nil
	}
	p, err := findPart(path, n)
	if err == nil && p.Node == "" {
		err = fmt.Errorf("the kernel has no device for partition %d of %s", n, path)
	}
	return p.Node, err
}
