package trivet

import (
	"fmt"
	"math"
	"path"
	"regexp"
	"strconv"
	"strings"
)

// Disk is one block device of a machine, as its inventory reports it.
type Disk struct {
	Name       string `json:"name"`                 // "/dev/vda"; not stable over boots where there are several
	Bytes      int64  `json:"bytes"`                // size
	Model      string `json:"model,omitempty"`      // as the disk reports it
	Serial     string `json:"serial,omitempty"`     // as the disk reports it
	Firmware   string `json:"firmware,omitempty"`   // the version of its firmware
	WWN        string `json:"wwn,omitempty"`        // "0x5000c500a1b2c3d4" or, of NVMe, "eui.0025385b21404321"
	HCTL       string `json:"hctl,omitempty"`       // SCSI host:channel:target:lun
	Location   string `json:"location,omitempty"`   // "pci-0000:00:1f.2-ata-1", its name in /dev/disk/by-path
	Bus        string `json:"bus,omitempty"`        // "nvme", "ata", "scsi", "usb", "virtio" or "mmc"
	Rotational bool   `json:"rotational,omitempty"` // a hard disk
	Removable  bool   `json:"removable,omitempty"`  // such as a USB stick
	ReadOnly   bool   `json:"readOnly,omitempty"`   // cannot be written to
	// Health is what it reports of itself (SMART), recorded since all heads have 0.3.1; none: it reports nothing.
	Health *DiskHealth `json:"health,omitempty"`
}

// DiskHealth is what a disk reports of itself (SMART), as the agent has read it when it started. What is missing the
// disk does not report. Its temperature is not recorded, as it changes all the time.
type DiskHealth struct {
	// Passed: the disk does not report that it fails, or will soon.
	Passed bool `json:"passed"`
	// Failing is why it fails, or will soon, by its own judgement: "its spare blocks are below the threshold".
	Failing string `json:"failing,omitempty"`
	// PowerOnHours is how long it had power, rounded down to a multiple of 100.
	PowerOnHours *int64 `json:"powerOnHours,omitempty"`
	// PercentUsed is the wear of a flash disk: at 100 it has reached the life that its maker expects; it may be more.
	PercentUsed *int64 `json:"percentUsed,omitempty"`
	// MediaErrors are the errors that it has not corrected, since it was made.
	MediaErrors *int64 `json:"mediaErrors,omitempty"`
	// ReallocatedSectors are those that a SATA disk has replaced by spare ones.
	ReallocatedSectors *int64 `json:"reallocatedSectors,omitempty"`
	// PendingSectors are those that a SATA disk could not read, and replaces when they are written.
	PendingSectors *int64 `json:"pendingSectors,omitempty"`
}

// DiskHealthRelease is the release since which a machine's record has the health of its disks.
const DiskHealthRelease Release = "0.3.1"

// DiskHints select one disk of a machine. A disk must match all that are set; exactly one disk may match. Without
// hints it is the smallest disk that is writable, not removable and not on USB.
type DiskHints struct {
	// Path is a device, "/dev/nvme0n1", "/dev/disk/by-id/..." or "/dev/disk/by-path/...".
	Path   string `json:"path,omitempty"`
	Serial string `json:"serial,omitempty"` // the serial number
	// WWN is the worldwide name, with or without its prefix "0x", "naa." or "eui.".
	WWN string `json:"wwn,omitempty"`
	// HCTL is the SCSI address, "0:0:1:0".
	HCTL string `json:"hctl,omitempty"`
	// Model is a part of the disk's model, in upper or lower case.
	Model string `json:"model,omitempty"`
	// MinSize and MaxSize bound the disk's size, "400GB" or "1TiB"; both included.
	MinSize ByteSize `json:"minSize,omitempty"`
	MaxSize ByteSize `json:"maxSize,omitempty"` // the largest size that matches
	// Rotational is true for hard disks, false for flash.
	Rotational *bool `json:"rotational,omitempty"`
}

// IsZero reports whether no hint is set.
func (h DiskHints) IsZero() bool { return h == DiskHints{} }

// String writes the hints as a manifest has them: "{serial: S4X, minSize: 400GB}".
func (h DiskHints) String() string {
	var words []string
	add := func(key, value string) {
		if value != "" {
			words = append(words, key+": "+value)
		}
	}
	add("path", h.Path)
	add("serial", h.Serial)
	add("wwn", h.WWN)
	add("hctl", h.HCTL)
	add("model", h.Model)
	if h.MinSize != 0 {
		add("minSize", h.MinSize.String())
	}
	if h.MaxSize != 0 {
		add("maxSize", h.MaxSize.String())
	}
	if h.Rotational != nil {
		add("rotational", strconv.FormatBool(*h.Rotational))
	}
	return "{" + strings.Join(words, ", ") + "}"
}

var hctlForm = regexp.MustCompile(`^[0-9]+(:[0-9]+){3}$`)

// Validate checks the hints by themselves. Its errors name fields below field.
func (h DiskHints) Validate(field string) error {
	var p problems
	p.devicePath(field+".path", h.Path)
	for _, text := range []struct{ name, value string }{{"serial", h.Serial}, {"wwn", h.WWN}, {"model", h.Model}} {
		p.bytes(field+"."+text.name, text.value, 256)
		if strings.ContainsAny(text.value, "\n\x00") {
			p.add(field+"."+text.name, "contains a line break or a null byte")
		}
	}
	if h.HCTL != "" && !hctlForm.MatchString(h.HCTL) {
		p.add(field+".hctl", "%q is not a SCSI address; write host:channel:target:lun, such as 0:0:1:0", h.HCTL)
	}
	if h.MaxSize != 0 && h.MinSize > h.MaxSize {
		p.add(field+".minSize", "%s is greater than maxSize, %s", h.MinSize, h.MaxSize)
	}
	return p.err()
}

func (p *problems) devicePath(field, dev string) {
	if dev != "" && (!strings.HasPrefix(dev, "/dev/") || path.Clean(dev) != dev ||
		strings.ContainsAny(dev, " \t\n\x00")) {
		p.add(field, "%q is not a device; write /dev/sda or /dev/disk/by-id/...", dev)
	}
}

// ByteSize is a number of bytes that people write as "512MiB" or "400GB".
type ByteSize int64

// sizeUnits are the units of sizes, in bytes, those with the shortest names for one value first.
var sizeUnits = []struct {
	name  string
	bytes int64
}{
	{"", 1}, {"B", 1},
	{"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"PB", 1e15},
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}, {"PiB", 1 << 50},
	{"K", 1e3}, {"M", 1e6}, {"G", 1e9}, {"T", 1e12}, {"P", 1e15},
	{"Ki", 1 << 10}, {"Mi", 1 << 20}, {"Gi", 1 << 30}, {"Ti", 1 << 40}, {"Pi", 1 << 50},
}

// String writes the size in the unit that needs the fewest digits, exactly.
func (s ByteSize) String() string {
	best := strconv.FormatInt(int64(s), 10)
	digits := len(best)
	for _, u := range sizeUnits[2:] {
		if s == 0 || int64(s)%u.bytes != 0 {
			continue
		}
		if text := strconv.FormatInt(int64(s)/u.bytes, 10); len(text) < digits {
			best, digits = text+u.name, len(text)
		}
	}
	return best
}

// MarshalText writes what UnmarshalText reads.
func (s ByteSize) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads "512MiB". G is 10^9 bytes and Gi is 2^30, with or without the B.
func (s *ByteSize) UnmarshalText(text []byte) error {
	digits := strings.TrimRight(string(text), "BKMGTPi")
	n, err := strconv.ParseInt(digits, 10, 64)
	for _, u := range sizeUnits {
		if err == nil && u.name == string(text[len(digits):]) && n > 0 && n <= math.MaxInt64/u.bytes {
			*s = ByteSize(n * u.bytes)
			return nil
		}
	}
	return fmt.Errorf("%q is not a size; write 512MiB, 20GiB or 400GB", text)
}
