package block

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/trivet-project/trivet/internal/agent/action/gpt"
)

// Content is what a device holds.
type Content struct {
	// Kind is "RAID" (the device is a member of an array by mdadm), "LVM" (it is a physical volume), a partition table,
	// or the type of a file system; empty: none of these.
	Kind string
	// ID is that of the array, 32 hexadecimal digits, or of the physical volume, as LVM has it but without hyphens.
	ID string
}

func (c Content) String() string {
	switch c.Kind {
	case "":
		return "nothing"
	case "RAID":
		return "a part of a RAID"
	case "LVM":
		return "a physical volume of LVM"
	case tableKind:
		return c.Kind
	}
	return "a file system, " + c.Kind
}

const tableKind = "a partition table"

// Examine returns what a device holds. An array is found first: what it holds may be visible on its members.
func (d *Device) Examine() Content {
	if id := d.raidMember(); id != "" {
		return Content{"RAID", id}
	}
	if id := d.physicalVolume(); id != "" {
		return Content{"LVM", id}
	}
	if fs := Probe(d); fs.Type != "" {
		return Content{Kind: fs.Type}
	}
	if _, err := d.Table(); err == nil || !errors.Is(err, gpt.ErrNone) {
		return Content{Kind: tableKind}
	}
	if d.hasDOSTable() {
		return Content{Kind: tableKind}
	}
	return Content{}
}

// hasDOSTable reports whether the first sector is that of a partition table of DOS, with a partition.
func (d *Device) hasDOSTable() bool {
	b := d.read(0, 512)
	if b == nil || b[510] != 0x55 || b[511] != 0xaa {
		return false
	}
	for off := 446; off < 510; off += 16 {
		if entry := b[off : off+16]; entry[0]&0x7f == 0 && entry[4] != 0 && le32(entry[12:]) != 0 {
			return true
		}
	}
	return false
}

// Of the superblock of an array (Linux's md_p.h).
const (
	mdMagic      = 0xa92b4efc
	mdReserved   = 64 << 10 // of format 0.90, at the end
	mdSuperBytes = 4096
)

// raidMember returns the ID of the array that the device is a member of.
func (d *Device) raidMember() (id string) {
	end := (d.size/512 - 16) &^ 7 * 512
	for _, off := range []int64{4096, 0, end} { // formats 1.2, 1.1 and 1.0
		if b := d.read(off, mdSuperBytes); b != nil && le32(b) == mdMagic && le32(b[4:]) == 1 {
			return hex.EncodeToString(b[16:32])
		}
	}
	if b := d.read(d.size&^(mdReserved-1)-mdReserved, mdSuperBytes); b != nil && le32(b) == mdMagic {
		return fmt.Sprintf("%08x%08x%08x%08x", le32(b[20:]), le32(b[52:]), le32(b[56:]), le32(b[60:]))
	}
	return ""
}

// physicalVolume returns the ID of the physical volume of LVM that the device is. Its label is in one of the first four
// sectors (LVM2's format_text).
func (d *Device) physicalVolume() (id string) {
	for off := int64(0); off < 4*512; off += 512 {
		b := d.read(off, 512)
		if b == nil || string(b[:8]) != "LABELONE" || string(b[24:32]) != "LVM2 001" {
			continue
		}
		if at := le32(b[20:]); at <= 512-32 {
			return string(bytes.Trim(b[at:at+32], "\x00"))
		}
	}
	return ""
}

// read returns a part of the device; nil where it has none.
func (d *Device) read(off int64, n int) []byte {
	b := make([]byte, n)
	if got, _ := d.ReadAt(b, off); got < n {
		return nil
	}
	return b
}

func le32(b []byte) uint32 { return binary.LittleEndian.Uint32(b) }
