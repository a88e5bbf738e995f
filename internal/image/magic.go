package image

import (
	"bytes"
	"fmt"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/image/qcow2"
)

// The compressions and formats, as trivet.ImageSpec has them.
const (
	None = ""
	Zstd = "zstd"
	Gzip = "gzip"
	XZ   = "xz"

	Raw = "raw" // a disk or a partition, byte for byte
	Tar = "tar" // a file tree
	OCI = "oci" // a tar of an OCI layout
)

// compressionOf returns the compression of a file by its first bytes.
func compressionOf(head []byte) string {
	switch {
	case bytes.HasPrefix(head, []byte{0x28, 0xb5, 0x2f, 0xfd}), isSkippable(head):
		return Zstd
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b, 8}):
		return Gzip
	case bytes.HasPrefix(head, []byte{0xfd, '7', 'z', 'X', 'Z', 0}):
		return XZ
	}
	return None
}

// isSkippable recognises the frames that some tools put before the first (RFC 8878, section 3.1.2).
func isSkippable(head []byte) bool {
	return len(head) >= 4 && head[0]&0xf0 == 0x50 && bytes.Equal(head[1:4], []byte{0x2a, 0x4d, 0x18})
}

// foreign are formats that cannot be written to a disk as they are: magic bytes at an offset, and what to do.
var foreign = []struct {
	at    int
	magic string
	what  string
	hint  string
}{
	{0, qcow2.Magic, "a qcow2 image", "import it by 'trivet image import', which converts it"},
	{0, "KDMV", "a VMDK image", convert("vmdk")},
	{0, "# Disk Descriptor", "a VMDK description", convert("vmdk")},
	{0, "vhdxfile", "a VHDX image", convert("vhdx")},
	{0, "conectix", "a VHD image", convert("vpc")},
	{0x40, "\x7f\x10\xda\xbe", "a VirtualBox image", convert("vdi")},
	{0, "BZh", "compressed by bzip2", "unpack it, and compress it by 'zstd -T0'"},
	{0, "7z\xbc\xaf\x27\x1c", "a 7z archive", "unpack it, and import the image in it"},
	{0, "PK\x03\x04", "a zip archive", "unpack it, and import the image in it"},
	{0, "\x04\x22\x4d\x18", "compressed by lz4", "unpack it, and compress it by 'zstd -T0'"},
	{0, "\x5d\x00\x00", "compressed by lzma", "unpack it, and compress it by 'zstd -T0'"},
}

func convert(format string) string {
	return "convert it: qemu-img convert -f " + format + " -O raw IMAGE disk.raw"
}

// Offsets of ISO 9660's first volume descriptor (ECMA-119, section 8).
const (
	isoAt    = 0x8001
	isoMagic = "CD001"
)

// refuse recognises unsupported images by the first bytes of their decompressed content.
func refuse(head []byte) error {
	for _, f := range foreign {
		if len(head) >= f.at && bytes.HasPrefix(head[f.at:], []byte(f.magic)) {
			return &trivet.Error{Op: "read image", Err: fmt.Errorf("%w: it is %s", trivet.ErrInvalid, f.what),
				Hint: f.hint}
		}
	}
	if len(head) > isoAt && bytes.HasPrefix(head[isoAt:], []byte(isoMagic)) {
		return &trivet.Error{Op: "read image", Err: fmt.Errorf("%w: it is an ISO 9660 image, a CD", trivet.ErrInvalid),
			Hint: "use the system's disk image (for clouds, or 'raw'), not its installer"}
	}
	return nil
}
