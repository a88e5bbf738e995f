package image

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"unicode/utf16"
)

// Part is a partition of an image, for people to see what they import.
type Part struct {
	Number int
	Bytes  int64
	Type   string // "EFI system", "Linux", or the number the table has
	Name   string // of GPT
}

// contentOf returns what a raw image contains.
func contentOf(head []byte) (string, []Part) {
	for _, sector := range []int{512, 4096} {
		if parts, ok := gptOf(head, sector); ok {
			return "gpt", parts
		}
	}
	for _, fs := range []struct {
		name, magic string
		at          int
	}{
		{"ext", "\x53\xef", 0x438}, {"xfs", "XFSB", 0}, {"btrfs", "_BHRfS_M", 0x10040}, {"squashfs", "hsqs", 0},
	} {
		if len(head) > fs.at && bytes.HasPrefix(head[fs.at:], []byte(fs.magic)) {
			return fs.name, nil
		}
	}
	if len(head) < 512 || head[510] != 0x55 || head[511] != 0xaa {
		return "", nil
	}
	for _, at := range []int{54, 82} { // a boot sector has this signature as well
		if bytes.HasPrefix(head[at:], []byte("FAT")) {
			return "fat", nil
		}
	}
	return "mbr", mbrOf(head)
}

// gptOf reads a GUID partition table (UEFI 2.10, chapter 5.3). Its checksums are not verified: the installed
// system will.
func gptOf(head []byte, sector int) (parts []Part, ok bool) {
	if len(head) < 2*sector || !bytes.HasPrefix(head[sector:], []byte("EFI PART")) {
		return nil, false
	}
	h := head[sector:]
	first, count, size := binary.LittleEndian.Uint64(h[72:]), binary.LittleEndian.Uint32(h[80:]),
		binary.LittleEndian.Uint32(h[84:])
	if first > headBytes || size < 128 || size > 4096 {
		return nil, true
	}
	for i := range int(min(count, 256)) {
		at := int(first)*sector + i*int(size)
		if at+128 > len(head) {
			break
		}
		e := head[at : at+128]
		from, to := binary.LittleEndian.Uint64(e[32:]), binary.LittleEndian.Uint64(e[40:])
		if bytes.Equal(e[:16], make([]byte, 16)) || to < from || to > 1<<50 {
			continue
		}
		parts = append(parts, Part{Number: i + 1, Bytes: int64(to-from+1) * int64(sector), Type: typeOf(e[:16]),
			Name: nameOf(e[56:])})
	}
	return parts, true
}

// typeOf names a partition's type GUID.
func typeOf(b []byte) string {
	id := fmt.Sprintf("%08x-%04x-%04x-%x-%x", binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint16(b[4:]),
		binary.LittleEndian.Uint16(b[6:]), b[8:10], b[10:16])
	for _, known := range [][2]string{
		{"c12a7328-f81f-11d2-ba4b-00a0c93ec93b", "EFI system"},
		{"21686148-6449-6e6f-744e-656564454649", "BIOS boot"},
		{"0fc63daf-8483-4772-8e79-3d69d8477de4", "Linux"},
		{"4f68bce3-e8cd-4db1-96e7-fbcaf984b709", "Linux root (x86-64)"},
		{"b921b045-1df0-41c3-af44-4c6f280d3fae", "Linux root (arm64)"},
		{"bc13c2ff-59e6-4262-a352-b275fd6f7172", "Linux boot"},
		{"0657fd6d-a4ab-43c4-84e5-0933c84b4f4f", "Linux swap"},
		{"e6d6d379-f507-44c2-a23c-238f2a3df928", "Linux LVM"},
		{"ebd0a0a2-b9e5-4433-87c0-68b6b72699c7", "data"},
	} {
		if id == known[0] {
			return known[1]
		}
	}
	return id
}

func nameOf(b []byte) string {
	units := make([]uint16, len(b)/2)
	for i := range units {
		units[i] = binary.LittleEndian.Uint16(b[2*i:])
	}
	name, _, _ := strings.Cut(string(utf16.Decode(units)), "\x00")
	return name
}

// mbrOf reads the primary partitions.
func mbrOf(head []byte) (parts []Part) {
	for i := range 4 {
		e := head[446+16*i:]
		if sectors := binary.LittleEndian.Uint32(e[12:]); e[4] != 0 && sectors > 0 {
			parts = append(parts, Part{Number: i + 1, Bytes: int64(sectors) * 512, Type: fmt.Sprintf("0x%02x", e[4])})
		}
	}
	return parts
}
