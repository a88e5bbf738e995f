package actionspec

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/trivet-project/trivet"
)

// Disk selects the disk that an action works on.
type Disk struct {
	// Hints select one disk; none means the machine's disk (Machine.spec.disk).
	Hints trivet.DiskHints `with:"disk"`
}

func (d *Disk) check(p *problems) {
	err := d.Hints.Validate("disk")
	if err == nil {
		return
	}
	for _, err := range err.(interface{ Unwrap() []error }).Unwrap() {
		f := err.(*trivet.FieldError)
		p.add(f.Field, "%s", f.Problem)
	}
}

// Target is a disk or one of its partitions.
type Target struct {
	Disk
	// Partition counts from 1; 0 is the whole disk.
	Partition int `with:"partition"`
}

func (t *Target) check(p *problems) {
	t.Disk.check(p)
	if t.Partition < 0 || t.Partition > 1024 {
		p.add("partition", "is %d; 1 to 1024", t.Partition)
	}
}

// Wipe is the arguments of wipe.
type Wipe struct {
	Disk        // Path "all" means every writable disk
	Mode string `with:"mode"`
}

// The modes of a wipe.
const (
	WipeQuick   = "quick"   // the ends of the disk and of its partitions, which hold all signatures
	WipeDiscard = "discard" // the disk discards its content, then as quick
	WipeZero    = "zero"    // every byte is written
	WipeErase   = "erase"   // by the best method that each disk has; the disks at the same time
)

// IsAll reports whether every writable disk is meant.
func (d *Disk) IsAll() bool { return d.Hints == trivet.DiskHints{Path: "all"} }

// checkAll checks a disk that may be all of them.
func (d *Disk) checkAll(p *problems) {
	if !d.IsAll() {
		d.check(p)
	}
}

func (w *Wipe) check(p *problems) {
	w.checkAll(p)
	p.choice("wipe.mode", w.Mode)
}

// Verify is the arguments of verify.
type Verify struct {
	Disk // Path "all" means every writable disk
}

func (v *Verify) check(p *problems) { v.checkAll(p) }

// Partition is the arguments of partition.
type Partition struct {
	Disk
	Partitions []PartitionEntry `with:"partitions,required"`
}

// PartitionEntry is one partition to create.
type PartitionEntry struct {
	Name string `with:"name"`
	Size string `with:"size,required"`
	Type string `with:"type"`
	UUID string `with:"uuid"`
}

func (s *Partition) check(p *problems) {
	s.Disk.check(p)
	if len(s.Partitions) == 0 || len(s.Partitions) > 128 {
		p.add("partitions", "has %d entries; 1 to 128", len(s.Partitions))
	}
	rest := 0
	for i := range s.Partitions {
		s.Partitions[i].check(p, fmt.Sprintf("partitions[%d]", i))
		if s.Partitions[i].Size == SizeRest {
			rest++
		}
	}
	if rest > 1 {
		p.add("partitions", "%d partitions have size rest; at most one may", rest)
	}
}

func (e *PartitionEntry) check(p *problems, field string) {
	if len([]rune(e.Name)) > 36 || strings.ContainsRune(e.Name, 0) {
		p.add(field+".name", "%q is longer than 36 characters or contains a null byte", e.Name)
	}
	if _, err := ParseSize(e.Size); err != nil {
		p.add(field+".size", "%v", err)
	}
	if !guidForm.MatchString(e.TypeGUID()) || e.TypeGUID() == zeroGUID {
		p.add(field+".type", "%q is not a partition type; write efi, bios, root, linux, swap, "+
			"home, xboot, lvm, raid or a GUID", e.Type)
	}
	if e.UUID != "" && !guidForm.MatchString(e.UUID) {
		p.add(field+".uuid", "%q is not a GUID", e.UUID)
	}
}

// partitionTypes are the partition types that have a name here.
var partitionTypes = map[string]string{
	"bios":  "21686148-6449-6e6f-744e-656564454649", // GRUB's core image on BIOS machines
	"efi":   "c12a7328-f81f-11d2-ba4b-00a0c93ec93b",
	"home":  "933ac7e1-2eb4-4f13-b844-0e14e2aef915",
	"linux": "0fc63daf-8483-4772-8e79-3d69d8477de4",
	"lvm":   "e6d6d379-f507-44c2-a23c-238f2a3df928",
	"raid":  "a19d880f-05fc-4d3b-a006-743f0f84911e",
	"root":  "4f68bce3-e8cd-4db1-96e7-fbcaf984b709", // x86-64
	"swap":  "0657fd6d-a4ab-43c4-84e5-0933c84b4f4f",
	"xboot": "bc13c2ff-59e6-4262-a352-b275fd6f7172", // /boot by the Boot Loader Specification
}

const zeroGUID = "00000000-0000-0000-0000-000000000000"

var guidForm = regexp.MustCompile(`^(?i)[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// TypeGUID returns the GUID of the partition's type.
func (e *PartitionEntry) TypeGUID() string {
	if e.Type == "" {
		return partitionTypes["linux"]
	}
	if guid, ok := partitionTypes[e.Type]; ok {
		return guid
	}
	return e.Type
}

// Format is the arguments of format.
type Format struct {
	Target
	FS      string   `with:"fs,required"`
	Label   string   `with:"label"`
	Options []string `with:"options"`
}

// labelBytes are the longest labels of the file systems.
var labelBytes = map[string]int{"ext4": 16, "vfat": 11, "xfs": 12, "swap": 16}

func (f *Format) check(p *problems) {
	f.Target.check(p)
	if !p.choice("format.fs", f.FS) {
		return
	}
	p.bytes("label", f.Label, labelBytes[f.FS])
	if f.FS == "swap" && len(f.Options) > 0 {
		p.addAny([]string{"options", "fs"}, "are arguments of mkfs, which swap does not use")
	}
	if strings.HasPrefix(f.Label, "-") || strings.ContainsAny(f.Label, "\n\x00") {
		p.add("label", "%q begins with '-' or contains a line break", f.Label)
	}
	checkWords(p, "options", f.Options)
}

// Image is the arguments of image.
type Image struct {
	Target
	Image string `with:"image,required"`
	Grow  bool   `with:"grow"`
}

func (i *Image) check(p *problems) {
	i.Target.check(p)
	p.recordName("image", i.Image)
	if i.Grow && i.Partition != 0 {
		p.add("grow", "applies to an image of a whole disk, not of partition %d", i.Partition)
	}
}
