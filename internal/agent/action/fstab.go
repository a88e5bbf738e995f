package action

import (
	"bytes"
	"slices"
	"strings"

	"github.com/trivet-project/trivet/internal/agent/action/block"
	"github.com/trivet-project/trivet/internal/agent/action/gpt"
)

// fstabEntry is one file system that an installed system mounts besides its root.
type fstabEntry struct {
	source string // "UUID=...", "LABEL=...", "PARTUUID=...", "PARTLABEL=..." or "/dev/..."
	dir    string
}

// maxFstab bounds /etc/fstab in bytes and entries.
const (
	maxFstab        = 64 << 10
	maxFstabEntries = 64
)

// localTypes are the file systems that are mounted for an action: those that a boot loader or package manager needs.
var localTypes = []string{"ext2", "ext3", "ext4", "xfs", "btrfs", "vfat", "auto"}

// parseFstab returns the entries to mount, outer directories first.
func parseFstab(b []byte) []fstabEntry {
	var out []fstabEntry
	for line := range bytes.Lines(b) {
		f := strings.Fields(string(line))
		if len(f) < 4 || strings.HasPrefix(f[0], "#") || len(out) == maxFstabEntries {
			continue
		}
		dir, options := unescape(f[1]), strings.Split(f[3], ",")
		if !strings.HasPrefix(dir, "/") || dir == "/" || !slices.Contains(localTypes, f[2]) ||
			slices.Contains(options, "noauto") {
			continue
		}
		out = append(out, fstabEntry{unescape(strings.ReplaceAll(f[0], `"`, "")), dir})
	}
	slices.SortStableFunc(out, func(a, b fstabEntry) int {
		return strings.Count(a.dir, "/") - strings.Count(b.dir, "/")
	})
	return out
}

// unescape reads fstab's way of writing spaces and tabs.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\134`, `\`).Replace(s)
}

// volume is a partition, an array or a volume of LVM that an entry may name.
type volume struct {
	disk   string
	number int
	node   string
	fs     block.FS
	uuid   string // of the partition
	name   string // of the partition
	isESP  bool
}

func (v volume) is(source string) bool {
	key, value, tagged := strings.Cut(source, "=")
	switch {
	case !tagged:
		return source == v.node && v.node != "" || sameDevice(source, v.node)
	case value == "":
		return false
	case key == "UUID":
		return strings.EqualFold(value, v.fs.UUID)
	case key == "LABEL":
		return value == v.fs.Label
	case key == "PARTUUID":
		return strings.EqualFold(value, v.uuid)
	case key == "PARTLABEL":
		return value == v.name
	}
	return false
}

// around returns the disks that a device is made of, and the volumes on them besides its own: their partitions, arrays
// and volumes of LVM.
func (s stack) around(device string) (disks []string, others []volume, err error) {
	own := s.nameOf(device)
	if own == "" {
		return []string{device}, nil, nil
	}
	names := s.disks(own)
	for _, disk := range s.disks(own) {
		disks = append(disks, nodeOf(disk))
		for _, name := range s.above(disk) {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	for _, name := range names {
		if name == own {
			continue
		}
		list, err := volumesOf(nodeOf(name))
		if err != nil {
			return nil, nil, err
		}
		others = append(others, list...)
	}
	return disks, others, nil
}

// volumesOf lists a disk's partitions, or the disk itself where it has none; without those that others are made of.
func volumesOf(disk string) ([]volume, error) {
	list, err := allVolumesOf(disk)
	st := stack{sysRoot}
	return slices.DeleteFunc(list, func(v volume) bool { return len(st.holders(st.nameOf(v.node))) > 0 }), err
}

func allVolumesOf(disk string) ([]volume, error) {
	d, err := block.OpenReadOnly(disk)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	parts, err := d.Parts()
	if err != nil {
		return nil, err
	}
	if len(parts) == 0 {
		return []volume{{disk: disk, node: disk, fs: block.Probe(d)}}, nil
	}
	table, _ := d.Table()
	var out []volume
	for _, p := range parts {
		v := volume{disk: disk, number: p.Number, node: p.Node, fs: d.ProbePart(p)}
		if table != nil {
			if t := table.Find(p.Number); t != nil {
				v.uuid, v.name, v.isESP = t.ID.String(), t.Name, t.Type == gpt.EFISystem
			}
		}
		out = append(out, v)
	}
	return out, nil
}
