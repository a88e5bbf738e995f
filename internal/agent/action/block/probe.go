package block

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"strings"
)

// FS is a file system on a device.
type FS struct {
	Type  string // "ext4" (and older ones), "xfs", "btrfs", "vfat", "swap"; empty when it is none of these
	UUID  string // as blkid and /dev/disk/by-uuid write it
	Label string
}

// IsRoot reports whether a Linux system can have its root on it.
func (f FS) IsRoot() bool { return f.Type == "ext4" || f.Type == "xfs" || f.Type == "btrfs" }

// probeBytes is as far into a device as the superblocks reach.
const probeBytes = 64<<10 + 4096

// Probe reads the superblocks.
func Probe(r io.ReaderAt) FS {
	b := make([]byte, probeBytes)
	n, err := r.ReadAt(b, 0)
	if err != nil && n < 4096 {
		return FS{}
	}
	at := func(off, n int) []byte { return b[off : off+n] }
	switch {
	case binary.LittleEndian.Uint16(at(1024+56, 2)) == 0xef53:
		return FS{"ext4", uuid(at(1024+104, 16)), text(at(1024+120, 16))}
	case string(at(0, 4)) == "XFSB":
		return FS{"xfs", uuid(at(32, 16)), text(at(108, 12))}
	case string(at(65536+64, 8)) == "_BHRfS_M":
		return FS{"btrfs", uuid(at(65536+32, 16)), text(at(65536+299, 256))}
	case string(at(4086, 10)) == "SWAPSPACE2":
		return FS{"swap", uuid(at(1024+12, 16)), text(at(1024+28, 16))}
	case b[510] != 0x55 || b[511] != 0xaa:
		return FS{}
	case string(at(82, 8)) == "FAT32   ":
		return FS{"vfat", serial(at(67, 4)), fatLabel(at(71, 11))}
	case string(at(54, 5)) == "FAT12", string(at(54, 5)) == "FAT16":
		return FS{"vfat", serial(at(39, 4)), fatLabel(at(43, 11))}
	}
	return FS{}
}

func uuid(b []byte) string {
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[0:4], b[4:6], b[6:8], b[8:10], b[10:16])
}

// serial is a FAT's volume number, "1A2B-3C4D".
func serial(b []byte) string {
	n := binary.LittleEndian.Uint32(b)
	return fmt.Sprintf("%04X-%04X", n>>16, n&0xffff)
}

func text(b []byte) string {
	b, _, _ = bytes.Cut(b, []byte{0})
	return strings.ToValidUTF8(string(b), "?")
}

func fatLabel(b []byte) string {
	if label := strings.TrimRight(text(b), " "); label != "NO NAME" {
		return label
	}
	return ""
}
