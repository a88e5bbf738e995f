package gpt

import (
	"fmt"
	"io"
	"slices"
)

// Want is a partition to create. Bytes 0 means all the remaining space.
type Want struct {
	Name     string
	Type, ID GUID
	Bytes    int64
}

// Plan lays partitions out on a disk, one after the other, each beginning at a full MiB. It fails where they do not
// fit.
func Plan(id GUID, size, sector int64, wants []Want) (*Table, error) {
	t := &Table{Sector: sector, Size: size, ID: id, entries: max(minEntries, int64(len(wants)))}
	step := max(align, sector) / sector
	next := roundUp(t.firstUsable(), step)
	var rest int64 // blocks for the partition without a size
	for _, w := range wants {
		rest += roundUp(roundUp(w.Bytes, sector)/sector, step)
	}
	end := t.lastUsable() + 1
	rest = (end - next - rest) / step * step
	for i, w := range wants {
		blocks := roundUp(roundUp(w.Bytes, sector)/sector, step)
		if w.Bytes == 0 {
			blocks = rest
		}
		if blocks <= 0 || next+blocks > end {
			return nil, fmt.Errorf("partition %d (%s) does not fit: the disk has %d MiB", i+1, w.Name, size>>20)
		}
		t.Parts = append(t.Parts, Part{Number: i + 1, Type: w.Type, ID: w.ID, Name: w.Name, First: next,
			Last: next + blocks - 1})
		next += blocks
	}
	return t, nil
}

func roundUp(n, step int64) int64 { return (n + step - 1) / step * step }

// Matches reports whether a disk's table is this one, both copies of it.
func (t *Table) Matches(disk io.ReaderAt) bool {
	primary, err := readAt(disk, t.Size, t.Sector, 1)
	if err != nil || primary.backup != t.blocks()-1 {
		return false
	}
	backup, err := readAt(disk, t.Size, t.Sector, t.blocks()-1)
	return err == nil && t.equal(primary) && t.equal(backup)
}

func (t *Table) equal(o *Table) bool {
	return t.ID == o.ID && t.entries == o.entries && slices.Equal(t.Parts, o.Parts)
}

// Grow fits a table to a disk that is larger than it was made for: the backup moves to the end, and with last the
// last partition is extended to the end. It reports whether anything changed and returns that partition, or nil
// when it did not grow.
func (t *Table) Grow(last bool) (changed bool, grown *Part) {
	changed = t.backup != t.blocks()-1
	if !last || len(t.Parts) == 0 {
		return changed, nil
	}
	p := &t.Parts[0]
	for i := range t.Parts {
		if t.Parts[i].Last > p.Last {
			p = &t.Parts[i]
		}
	}
	step := max(align, t.Sector) / t.Sector
	end := (t.lastUsable()+1)/step*step - 1
	if end <= p.Last {
		return changed, nil
	}
	p.Last = end
	return true, p
}
