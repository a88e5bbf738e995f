package actionspec

import (
	"fmt"
	"path"
	"strings"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/agent/action/gpt"
)

// Disk says which disk of the machine is meant.
type Disk struct {
	// Disk is "/dev/sda", "/dev/disk/by-id/...", or "serial:" and a serial number. Empty means the smallest one that can be
	// installed on.
	Disk string `with:"disk"`
}

func (d *Disk) check(p *problems) {
	if d.Disk == "" {
		return
	}
	isSerial := strings.HasPrefix(d.Disk, "serial:") && len(d.Disk) > len("serial:")
	isDevice := strings.HasPrefix(d.Disk, "/dev/") && path.Clean(d.Disk) == d.Disk
	if !isSerial && !isDevice || strings.ContainsAny(d.Disk, "\n\x00") {
		p.add("disk", "%q is no disk; write /dev/sda, /dev/disk/by-id/... or serial:NUMBER", d.Disk)
	}
}

// Target is a disk or one of its partitions.
type Target struct {
	Disk
	// Partition counts from 1; 0 means the whole disk.
	Partition int `with:"partition"`
}

func (t *Target) check(p *problems) {
	t.Disk.check(p)
	if t.Partition < 0 || t.Partition > 1024 {
		p.add("partition", "is %d; 1 to 1024", t.Partition)
	}
}

// Root is the installed system's root file system.
type Root struct {
	Disk
	// Partition counts from 1; 0 means that the disk is searched for it.
	Partition int `with:"partition"`
}

func (r *Root) check(p *problems) { (*Target)(r).check(p) }

// Wipe makes a disk empty.
type Wipe struct {
	// Disk as in [Disk], or "all" for every disk that can be written to.
	Disk string `with:"disk"`
	// Mode is "quick" (the default: the ends of the disk and of its partitions, where all file systems, RAIDs and partition
	// tables have their signatures), "discard" (the disk forgets its content, and quick) or "zero" (every byte is written).
	Mode string `with:"mode"`
}

// The modes of a wipe.
const (
	WipeQuick   = "quick"
	WipeDiscard = "discard"
	WipeZero    = "zero"
)

func (w *Wipe) check(p *problems) {
	if w.Disk != "all" {
		(&Disk{w.Disk}).check(p)
	}
	p.oneOf("mode", w.Mode, WipeQuick, WipeDiscard, WipeZero)
}

// Partition gives a disk a GUID partition table.
type Partition struct {
	Disk
	// Partitions in their order. What the disk held is lost, unless its table is the wanted one already.
	Partitions []PartitionEntry `with:"partitions"`
}

// PartitionEntry is one partition to be made.
type PartitionEntry struct {
	Name string `with:"name"` // at most 36 characters; the kernel shows it as PARTLABEL
	// Size is "512MiB", "20GiB", or "rest" for what the others leave.
	Size string `with:"size"`
	// Type is efi, bios, root, linux (the default), swap, home, xboot, lvm, raid or a GUID.
	Type string `with:"type"`
	// UUID is the partition's own; empty means one that is derived from the run.
	UUID string `with:"uuid"`
}

func (s *Partition) check(p *problems) {
	s.Disk.check(p)
	if len(s.Partitions) == 0 || len(s.Partitions) > 128 {
		p.add("partitions", "has %d entries; 1 to 128", len(s.Partitions))
	}
	rest := 0
	for i, e := range s.Partitions {
		field := fmt.Sprintf("partitions[%d]", i)
		if len([]rune(e.Name)) > 36 || strings.ContainsRune(e.Name, 0) {
			p.add(field+".name", "%q is longer than 36 characters, or holds a null", e.Name)
		}
		bytes, err := ParseSize(e.Size)
		switch {
		case err != nil:
			p.add(field+".size", "%v", err)
		case bytes == 0:
			rest++
		}
		if _, err := gpt.Type(e.TypeName()); err != nil {
			p.add(field+".type", "%v", err)
		}
		if _, err := gpt.ParseGUID(e.UUID); e.UUID != "" && err != nil {
			p.add(field+".uuid", "%v", err)
		}
	}
	if rest > 1 {
		p.add("partitions", "%d of them want the rest; one may", rest)
	}
}

// TypeName is the type with its default.
func (e *PartitionEntry) TypeName() string {
	if e.Type == "" {
		return "linux"
	}
	return e.Type
}

// Format makes a file system.
type Format struct {
	Target
	// FS is ext4, vfat, xfs or swap.
	FS string `with:"fs"`
	// Label: at most 16 bytes for ext4 and swap, 12 for xfs, 11 for vfat.
	Label string `with:"label"`
	// Options are added to the arguments of the mkfs program; swap takes none.
	Options []string `with:"options"`
}

// labelBytes are the file systems that there are, and how long a label of each may be.
var labelBytes = map[string]int{"ext4": 16, "vfat": 11, "xfs": 12, "swap": 16}

func (f *Format) check(p *problems) {
	f.Target.check(p)
	limit, ok := labelBytes[f.FS]
	if !ok {
		p.add("fs", "%q must be one of ext4, vfat, xfs, swap", f.FS)
		return
	}
	p.bytes("label", f.Label, limit)
	if f.FS == "swap" && len(f.Options) > 0 {
		p.add("options", "are for the program of another file system; swap is made without one")
	}
	if strings.HasPrefix(f.Label, "-") || strings.ContainsAny(f.Label, "\n\x00") {
		p.add("label", "%q begins with '-' or holds a line break", f.Label)
	}
	checkWords(p, "options", f.Options)
}

// Image writes an image's bytes to a disk or partition.
type Image struct {
	Target
	// Image names an Image record of format raw.
	Image string `with:"image"`
	// Grow makes the partition table reach to the disk's end, and the last partition and its file system (ext4) with it.
	Grow bool `with:"grow"`
}

func (i *Image) check(p *problems) {
	i.Target.check(p)
	checkName(p, "image", i.Image)
	if i.Grow && i.Partition != 0 {
		p.add("grow", "is for an image of a whole disk, not of partition %d", i.Partition)
	}
}

func checkName(p *problems, field, name string) {
	if err := trivet.ValidateName(name); err != nil {
		p.add(field, "%q is no name of a record", name)
	}
}
