// Package gpt reads and writes GUID partition tables (UEFI 2.10, chapter 5). It does no I/O beyond
// the reader and writer of its caller, and does not notify the kernel.
package gpt

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"unicode/utf16"
)

// Sizes on the disk, in bytes.
const (
	headerBytes = 92
	entryBytes  = 128
	minEntries  = 128  // the number that is written; the standard requires room for 16 KiB
	maxEntries  = 1024 // the most that are read
	nameUnits   = 36   // UTF-16 code units of a partition's name
	align       = 1 << 20
)

// ErrNone means that a disk has no valid table.
var ErrNone = errors.New("no GUID partition table")

// Table is a partition table of a disk.
type Table struct {
	Sector int64 // bytes of a logical block
	Size   int64 // bytes of the disk
	ID     GUID
	Parts  []Part // by number
	// entries is how many there is room for.
	entries int64
	// backup is the block of the backup header according to the table; after a disk has grown it is not the disk's
	// last.
	backup int64
}

// Part is one partition. First and Last are blocks, both included.
type Part struct {
	Number     int // from 1
	Type, ID   GUID
	First      int64
	Last       int64
	Attributes uint64
	Name       string
}

// Offset returns where a partition starts on its disk, in bytes.
func (t *Table) Offset(p Part) int64 { return p.First * t.Sector }

// Bytes is a partition's size.
func (t *Table) Bytes(p Part) int64 { return (p.Last - p.First + 1) * t.Sector }

// Find returns a partition by its number; nil when there is none.
func (t *Table) Find(number int) *Part {
	i := slices.IndexFunc(t.Parts, func(p Part) bool { return p.Number == number })
	if i < 0 {
		return nil
	}
	return &t.Parts[i]
}

func (t *Table) blocks() int64 { return t.Size / t.Sector }

// entryBlocks returns the size of the array of entries in blocks.
func (t *Table) entryBlocks() int64 { return (t.entries*entryBytes + t.Sector - 1) / t.Sector }

// firstUsable and lastUsable return the range of blocks for partitions.
func (t *Table) firstUsable() int64 { return 2 + t.entryBlocks() }
func (t *Table) lastUsable() int64  { return t.blocks() - 2 - t.entryBlocks() }

// Read returns the table of a disk: the primary one, or the backup at the disk's end where that is damaged.
func Read(disk io.ReaderAt, size, sector int64) (*Table, error) {
	if sector < 512 || sector > 65536 || sector&(sector-1) != 0 {
		return nil, fmt.Errorf("blocks of %d bytes", sector)
	}
	if size/sector < 6 {
		return nil, fmt.Errorf("%w: the disk has %d bytes", ErrNone, size)
	}
	t, err := readAt(disk, size, sector, 1)
	if err != nil {
		var errBackup error
		if t, errBackup = readAt(disk, size, sector, size/sector-1); errBackup != nil {
			return nil, err
		}
	}
	return t, nil
}

func readAt(disk io.ReaderAt, size, sector, block int64) (*Table, error) {
	h := make([]byte, sector)
	if _, err := disk.ReadAt(h, block*sector); err != nil {
		return nil, err
	}
	le := binary.LittleEndian
	headerSize := le.Uint32(h[12:])
	if string(h[:8]) != "EFI PART" || headerSize < headerBytes || int64(headerSize) > sector {
		return nil, ErrNone
	}
	sum := le.Uint32(h[16:])
	clear(h[16:20])
	if crc32.ChecksumIEEE(h[:headerSize]) != sum || int64(le.Uint64(h[24:])) != block {
		return nil, fmt.Errorf("%w: the header is damaged", ErrNone)
	}
	t := &Table{Sector: sector, Size: size, ID: GUID(h[56:72]), entries: int64(le.Uint32(h[80:])),
		backup: int64(le.Uint64(h[32:]))}
	if block != 1 {
		t.backup = block
	}
	at := int64(le.Uint64(h[72:]))
	if bytes := le.Uint32(h[84:]); bytes != entryBytes || t.entries < 1 || t.entries > maxEntries || at < 2 ||
		at >= t.blocks() {
		return nil, fmt.Errorf("%w: %d entries of %d bytes at block %d", ErrNone, t.entries, bytes, at)
	}
	raw := make([]byte, t.entries*entryBytes)
	if _, err := disk.ReadAt(raw, at*sector); err != nil {
		return nil, err
	}
	if crc32.ChecksumIEEE(raw) != le.Uint32(h[88:]) {
		return nil, fmt.Errorf("%w: the entries are damaged", ErrNone)
	}
	t.readEntries(raw)
	return t, t.check()
}

func (t *Table) readEntries(raw []byte) {
	le := binary.LittleEndian
	for i := 0; i < len(raw); i += entryBytes {
		e := raw[i : i+entryBytes]
		if GUID(e[:16]) == (GUID{}) {
			continue
		}
		var units []uint16
		for u := 56; u < entryBytes && le.Uint16(e[u:]) != 0; u += 2 {
			units = append(units, le.Uint16(e[u:]))
		}
		t.Parts = append(t.Parts, Part{
			Number: i/entryBytes + 1, Type: GUID(e[:16]), ID: GUID(e[16:32]), First: int64(le.Uint64(e[32:])),
			Last: int64(le.Uint64(e[40:])), Attributes: le.Uint64(e[48:]), Name: string(utf16.Decode(units)),
		})
	}
}

// check refuses partitions that overlap, or lie where none can. A table that was made for a larger disk is one of
// these.
func (t *Table) check() error {
	byPlace := slices.SortedFunc(slices.Values(t.Parts), func(a, b Part) int { return cmp.Compare(a.First, b.First) })
	next := int64(2)
	for _, p := range byPlace {
		if p.First < 2 || p.Last < p.First || p.Last >= t.blocks() {
			return fmt.Errorf("%w: partition %d reaches from block %d to %d of %d", ErrNone, p.Number, p.First, p.Last,
				t.blocks())
		}
		if p.First < next {
			return fmt.Errorf("%w: partition %d overlaps another", ErrNone, p.Number)
		}
		next = p.Last + 1
	}
	return nil
}

// Write puts both copies of the table on the disk, the backup first, and a protective MBR that keeps the boot code
// there.
func (t *Table) Write(disk interface {
	io.ReaderAt
	io.WriterAt
}) error {
	if err := t.check(); err != nil {
		return err
	}
	for _, p := range t.Parts {
		if p.First < t.firstUsable() || p.Last > t.lastUsable() || int64(p.Number) > t.entries {
			return fmt.Errorf("partition %d does not fit on a disk of %d bytes", p.Number, t.Size)
		}
	}
	t.backup = t.blocks() - 1
	raw := t.rawEntries()
	mbr := make([]byte, t.Sector)
	if _, err := disk.ReadAt(mbr, 0); err != nil {
		return err
	}
	protect(mbr, t.blocks())
	for _, w := range []struct {
		block int64
		data  []byte
	}{
		{t.backup - t.entryBlocks(), raw}, {t.backup, t.header(t.backup, 1, t.backup-t.entryBlocks(), raw)},
		{2, raw}, {1, t.header(1, t.backup, 2, raw)}, {0, mbr},
	} {
		if _, err := disk.WriteAt(w.data, w.block*t.Sector); err != nil {
			return err
		}
	}
	return nil
}

func (t *Table) rawEntries() []byte {
	raw := make([]byte, t.entries*entryBytes)
	le := binary.LittleEndian
	for _, p := range t.Parts {
		e := raw[(p.Number-1)*entryBytes:][:entryBytes]
		copy(e, p.Type[:])
		copy(e[16:], p.ID[:])
		le.PutUint64(e[32:], uint64(p.First))
		le.PutUint64(e[40:], uint64(p.Last))
		le.PutUint64(e[48:], p.Attributes)
		units := utf16.Encode([]rune(p.Name))
		for i, u := range units[:min(len(units), nameUnits)] {
			le.PutUint16(e[56+2*i:], u)
		}
	}
	return raw
}

func (t *Table) header(own, other, entriesAt int64, raw []byte) []byte {
	h := make([]byte, t.Sector)
	le := binary.LittleEndian
	copy(h, "EFI PART")
	le.PutUint32(h[8:], 0x00010000)
	le.PutUint32(h[12:], headerBytes)
	le.PutUint64(h[24:], uint64(own))
	le.PutUint64(h[32:], uint64(other))
	le.PutUint64(h[40:], uint64(t.firstUsable()))
	le.PutUint64(h[48:], uint64(t.lastUsable()))
	copy(h[56:], t.ID[:])
	le.PutUint64(h[72:], uint64(entriesAt))
	le.PutUint32(h[80:], uint32(t.entries))
	le.PutUint32(h[84:], entryBytes)
	le.PutUint32(h[88:], crc32.ChecksumIEEE(raw))
	le.PutUint32(h[16:], crc32.ChecksumIEEE(h[:headerBytes]))
	return h
}

// protect sets the partition table of an MBR to one entry that covers the disk. A hybrid MBR is not changed:
// firmware may need it.
func protect(mbr []byte, blocks int64) {
	entries := mbr[446:510]
	isMBR := mbr[510] == 0x55 && mbr[511] == 0xaa
	if isMBR && entries[4] == 0xee && len(bytes.Trim(entries[16:], "\x00")) > 0 {
		return
	}
	clear(entries)
	copy(entries, []byte{0, 0, 2, 0, 0xee, 0xff, 0xff, 0xff, 1, 0, 0, 0})
	binary.LittleEndian.PutUint32(entries[12:], uint32(min(blocks-1, 0xffffffff)))
	mbr[510], mbr[511] = 0x55, 0xaa
}
