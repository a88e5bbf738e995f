// Package qcow2 reads the disks that QEMU's qcow2 files hold, versions 2 and 3 (QEMU, docs/interop/qcow2).
//
// A file is hostile input: what it describes is compared with its size before it is read, and the memory that a reader
// uses is bounded by a few clusters and the first table. What needs another file, or a key, is refused. Defects
// of the file are [trivet.ErrInvalid]; errors of its source are returned unchanged.
package qcow2

import (
	"encoding/binary"
	"fmt"
	"io"

	"github.com/trivet-project/trivet"
)

// Magic is how a file begins.
const Magic = "QFI\xfb"

// MaxSize bounds the disk of an image, in bytes: a file of a few KiB may describe one of any size.
const MaxSize = 16 << 40

// Bounds of clusters, as in QEMU, and of the first table.
const (
	minClusterBits = 9
	maxClusterBits = 21
	maxL1Bytes     = 32 << 20
)

// Incompatible features: a reader must know all that are set.
const (
	dirty = 1 << iota // reference counts may be wrong, which only writers use
	corrupt
	externalData
	compressionType
	extendedL2
)

// Image is an opened file.
type Image struct {
	src     io.ReaderAt
	file    int64 // bytes of the file
	size    int64 // bytes of the disk
	bits    int   // of an offset in a cluster
	version uint32
	zstd    bool // the clusters that are compressed; otherwise by deflate
	l1      []uint64
}

// Open reads the header and the first table of a file.
func Open(src io.ReaderAt, size int64) (*Image, error) {
	img := &Image{src: src, file: size}
	if err := img.open(); err != nil {
		return nil, fmt.Errorf("read qcow2: %w", err)
	}
	return img, nil
}

// Size returns the number of bytes of the disk.
func (img *Image) Size() int64 { return img.size }

func (img *Image) open() error {
	var h [112]byte
	if _, err := img.src.ReadAt(h[:min(int64(len(h)), img.file)], 0); err != nil && err != io.EOF {
		return err
	}
	img.version = binary.BigEndian.Uint32(h[4:])
	if string(h[:4]) != Magic || img.version < 2 || img.version > 3 {
		return damaged("the header is not one of version 2 or 3")
	}
	if err := img.features(h[:]); err != nil {
		return err
	}
	if err := img.geometry(h[:]); err != nil {
		return err
	}
	return img.readL1(int64(binary.BigEndian.Uint64(h[40:])), binary.BigEndian.Uint32(h[36:]))
}

// features refuses what a reader of this file alone cannot read.
func (img *Image) features(h []byte) error {
	if binary.BigEndian.Uint64(h[8:]) != 0 {
		return refused("it needs its backing file", "convert it where that file is")
	}
	if binary.BigEndian.Uint32(h[32:]) != 0 {
		return refused("it is encrypted", "decrypt it with its key")
	}
	if img.version == 2 {
		return nil
	}
	switch set := binary.BigEndian.Uint64(h[72:]); {
	case set&corrupt != 0:
		return &trivet.Error{Op: "read image", Err: fmt.Errorf("%w: it is marked as corrupt", trivet.ErrInvalid),
			Hint: "repair it: qemu-img check -r all IMAGE"}
	case set&externalData != 0:
		return refused("its data is in another file", "convert it where that file is")
	case set&extendedL2 != 0:
		return refused("it has subclusters", "convert it")
	case set&^(dirty|compressionType) != 0:
		return refused(fmt.Sprintf("it has features that are not known (%#x)", set), "convert it")
	}
	switch kind := h[104]; {
	case binary.BigEndian.Uint32(h[100:]) <= 104 || kind == 0:
	case kind == 1:
		img.zstd = true
	default:
		return refused(fmt.Sprintf("it is compressed by a method that is not known (%d)", kind), "convert it")
	}
	return nil
}

func (img *Image) geometry(h []byte) error {
	bits, size := binary.BigEndian.Uint32(h[20:]), binary.BigEndian.Uint64(h[24:])
	if bits < minClusterBits || bits > maxClusterBits {
		return damaged("its clusters have 2^%d bytes", bits)
	}
	if size == 0 || size%512 != 0 {
		return damaged("its disk has %d bytes", size)
	}
	if size > MaxSize {
		return fmt.Errorf("%w: %w: its disk has %d bytes; at most %d", trivet.ErrInvalid, trivet.ErrTooLarge, size,
			int64(MaxSize))
	}
	img.bits, img.size = int(bits), int64(size)
	return nil
}

// cluster returns the size of a cluster.
func (img *Image) cluster() int64 { return 1 << img.bits }

// readL1 reads the entries that the disk's size needs; a table may be longer.
func (img *Image) readL1(at int64, entries uint32) error {
	span := img.cluster() * img.cluster() / 8 // of the disk, for one entry
	need := (img.size + span - 1) / span
	if int64(entries) < need || need*8 > maxL1Bytes {
		return damaged("its first table has %d entries; the disk needs %d", entries, need)
	}
	if at%img.cluster() != 0 || !img.holds(at, need*8) {
		return damaged("its first table is beyond the end of the file")
	}
	b := make([]byte, need*8)
	if err := img.readAt(b, at); err != nil {
		return err
	}
	img.l1 = make([]uint64, need)
	for i := range img.l1 {
		img.l1[i] = binary.BigEndian.Uint64(b[8*i:])
	}
	return nil
}

// holds reports whether n bytes at an offset are in the file, behind its header.
func (img *Image) holds(at, n int64) bool {
	return at >= img.cluster() && n <= img.file && at <= img.file-n
}

func (img *Image) readAt(b []byte, at int64) error {
	n, err := img.src.ReadAt(b, at)
	if n == len(b) {
		return nil
	}
	if err == io.EOF {
		return damaged("the file is cut off at %d bytes", at+int64(n))
	}
	return err
}

func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: the qcow2 image is damaged: %s", trivet.ErrInvalid, fmt.Sprintf(format, args...))
}

func refused(why, what string) error {
	return &trivet.Error{Op: "read image", Err: fmt.Errorf("%w: a qcow2 image: %s", trivet.ErrInvalid, why),
		Hint: what + ": qemu-img convert -O raw IMAGE disk.raw, and import disk.raw"}
}
