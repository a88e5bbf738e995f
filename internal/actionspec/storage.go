package actionspec

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/trivet-project/trivet"
)

// Bounds of arrays and of volume groups.
const (
	maxMembers   = 16
	maxVolumes   = 64
	maxArrayName = 27 // a superblock has 31 bytes for "any:" and the name
	maxLVMName   = 32 // the device mapper has 127 bytes for both names, in which a hyphen takes two
)

// Raid is the arguments of raid.
type Raid struct {
	Name     string   `with:"name,required"`
	Level    int      `with:"level"`
	Devices  []Target `with:"devices,required"`
	Metadata string   `with:"metadata"`
}

// The formats of an array's superblock.
const (
	MetadataStart = "1.2" // 4 KiB after the start of each device
	MetadataEnd   = "1.0" // at the end: what reads one device alone finds the file system
)

// Path returns the array's node.
func (r *Raid) Path() string { return "/dev/md/" + r.Name }

// arrayName is stricter than mdadm: the name becomes a file's, and a part of the configuration of the installed system.
var arrayName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]*$`)

func (r *Raid) check(p *problems) {
	if len(r.Name) > maxArrayName || !arrayName.MatchString(r.Name) {
		p.add("name", "%q is not an array's name; write 1 to %d letters, digits, '_', '-' and '.', such as root",
			r.Name, maxArrayName)
	}
	if r.Level != 1 {
		p.add("level", "is %d; only level 1, a mirror, can be created by this action; others by a command action",
			r.Level)
	}
	checkDevices(p, r.Devices, 2)
	if !slices.Contains(choices["raid.metadata"], r.Metadata) {
		p.add("metadata", `%q must be "1.2" or, for what firmware reads, "1.0", in quotes`, r.Metadata)
	}
}

// checkDevices checks the devices that an array or a volume group is made of.
func checkDevices(p *problems, devices []Target, least int) {
	if len(devices) < least || len(devices) > maxMembers {
		p.add("devices", "has %d entries; %d to %d", len(devices), least, maxMembers)
	}
	for i, d := range devices {
		field := fmt.Sprintf("devices[%d]", i)
		below := *p
		below.errs, below.path = nil, p.path+field+"."
		d.check(&below)
		p.errs = append(p.errs, below.errs...)
		same := func(other Target) bool {
			return other.Partition == d.Partition && other.Hints.String() == d.Hints.String()
		}
		if at := slices.IndexFunc(devices, same); at < i {
			first := fmt.Sprintf("devices[%d]", at)
			p.addAny([]string{field, first}, "is the same device as %s", first)
		}
	}
}

// LVM is the arguments of lvm.
type LVM struct {
	Group   string   `with:"group,required"`
	Devices []Target `with:"devices,required"`
	Volumes []Volume `with:"volumes,required"`
}

// Volume is a logical volume to create.
type Volume struct {
	Name string `with:"name,required"`
	Size string `with:"size,required"`
}

// Path returns a volume's node.
func (l *LVM) Path(volume string) string { return "/dev/" + l.Group + "/" + volume }

var (
	lvmName = regexp.MustCompile(`^[A-Za-z0-9_+.][A-Za-z0-9_+.-]*$`)
	// lvmReserved are the names of logical volumes that LVM has for itself, see lvm(8).
	lvmReserved = regexp.MustCompile(`^(snapshot|pvmove)|_(cdata|cmeta|corig|cpool|cvol|mimage|mlog|pmspare|rimage|` +
		`rmeta|tdata|tmeta|vdata|vorigin|wcorig|wpool|imeta|iorig)`)
)

// devDirectories are directories of /dev that a volume group would share.
var devDirectories = []string{"block", "bus", "char", "cpu", "disk", "fd", "input", "mapper", "md", "net", "pts", "shm"}

func (l *LVM) check(p *problems) {
	if !isLVMName(l.Group) || slices.Contains(devDirectories, l.Group) {
		p.add("group", "%q is not a volume group's name; write 1 to %d letters, digits, '_', '+', '-' and '.', such as "+
			"vg0, and no directory of /dev", l.Group, maxLVMName)
	}
	checkDevices(p, l.Devices, 1)
	if len(l.Volumes) == 0 || len(l.Volumes) > maxVolumes {
		p.add("volumes", "has %d entries; 1 to %d", len(l.Volumes), maxVolumes)
	}
	rest := 0
	for i, v := range l.Volumes {
		l.checkVolume(p, i)
		if v.Size == SizeRest {
			rest++
		}
	}
	if rest > 1 {
		p.add("volumes", "%d volumes have size rest; at most one may", rest)
	}
}

func (l *LVM) checkVolume(p *problems, i int) {
	v, field := l.Volumes[i], fmt.Sprintf("volumes[%d]", i)
	if !isLVMName(v.Name) || lvmReserved.MatchString(v.Name) {
		p.add(field+".name", "%q is not a volume's name; write 1 to %d letters, digits, '_', '+', '-' and '.', such as "+
			"root, and none that LVM uses itself", v.Name, maxLVMName)
	}
	if _, err := ParseSize(v.Size); err != nil {
		p.add(field+".size", "%v", err)
	}
	same := func(other Volume) bool { return other.Name == v.Name }
	if at := slices.IndexFunc(l.Volumes, same); at < i {
		first := fmt.Sprintf("volumes[%d].name", at)
		p.addAny([]string{field + ".name", first}, "%q is also the name of volumes[%d]", v.Name, at)
	}
}

func isLVMName(s string) bool {
	return len(s) <= maxLVMName && lvmName.MatchString(s) && strings.Trim(s, ".") != ""
}

// FixedBytes returns the sum of the sizes that are given.
func (l *LVM) FixedBytes() (sum int64) {
	for _, v := range l.Volumes {
		bytes, _ := ParseSize(v.Size) // these were checked
		sum += min(bytes, 1<<62-sum)
	}
	return sum
}

// targetType may be written as a text, which is the path of the disk.
var targetType = reflect.TypeFor[Target]()

func targetOf(path string) Target { return Target{Disk: Disk{trivet.DiskHints{Path: path}}} }
