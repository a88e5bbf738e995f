package actionspec

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/trivet-project/trivet"
)

// Errors of [ChooseDisk].
var (
	// ErrNoDisk means that the machine has no disk at all.
	ErrNoDisk = errors.New("the machine has no disk")
	// ErrNoMatch means that no disk of the machine matches.
	ErrNoMatch = errors.New("no disk matches")
	// ErrAmbiguousDisk means that several disks match.
	ErrAmbiguousDisk = errors.New("several disks match")
)

// ChooseDisk returns the one disk that the hints match. Read-only disks never match; removable disks, disks on USB and
// those in avoid (names) match only hints that identify a disk: path, serial, wwn or hctl.
//
// Without hints it is the smallest disk that matches; of several of the same size the first by location, then by
// serial number, then by name, so that every boot chooses the same one.
func ChooseDisk(disks []trivet.Disk, h trivet.DiskHints, avoid ...string) (trivet.Disk, error) {
	var matching []trivet.Disk
	for _, d := range disks {
		if isUsable(d, h, avoid) && matches(d, h) {
			matching = append(matching, d)
		}
	}
	switch {
	case len(matching) == 0:
		return trivet.Disk{}, noDisk(disks, h)
	case h.IsZero():
		return slices.MinFunc(matching, compareDisks), nil
	case len(matching) > 1:
		return trivet.Disk{}, fmt.Errorf("%w the hints %s: %s; add hints to spec.disk of the "+
			"machine until one disk matches, such as its serial", ErrAmbiguousDisk, h, describeDisks(matching))
	}
	return matching[0], nil
}

func noDisk(disks []trivet.Disk, h trivet.DiskHints) error {
	switch {
	case len(disks) == 0:
		return fmt.Errorf("%w: the installer found none", ErrNoDisk)
	case h.IsZero():
		return fmt.Errorf("%w: none is writable, not removable and not on USB; the machine has "+
			"%s; set spec.disk of the machine to the path or serial of one of them", ErrNoMatch, describeDisks(disks))
	}
	return fmt.Errorf("%w the hints %s; the machine has %s; set spec.disk of the machine "+
		"to hints that match one of them",
		ErrNoMatch, h, describeDisks(disks))
}

func compareDisks(a, b trivet.Disk) int {
	return cmp.Or(cmp.Compare(a.Bytes, b.Bytes), cmp.Compare(a.Location, b.Location), cmp.Compare(a.Serial, b.Serial),
		cmp.Compare(a.Name, b.Name))
}

func isUsable(d trivet.Disk, h trivet.DiskHints, avoid []string) bool {
	if d.ReadOnly {
		return false
	}
	identifies := h.Path != "" || h.Serial != "" || h.WWN != "" || h.HCTL != ""
	return identifies || !d.Removable && d.Bus != "usb" && !slices.Contains(avoid, d.Name)
}

func matches(d trivet.Disk, h trivet.DiskHints) bool {
	return (h.Path == "" || hasPath(d, h.Path)) &&
		(h.Serial == "" || h.Serial == d.Serial) &&
		(h.WWN == "" || d.WWN != "" && plainWWN(h.WWN) == plainWWN(d.WWN)) &&
		(h.HCTL == "" || h.HCTL == d.HCTL) &&
		strings.Contains(strings.ToLower(d.Model), strings.ToLower(h.Model)) &&
		d.Bytes >= int64(h.MinSize) &&
		(h.MaxSize == 0 || d.Bytes <= int64(h.MaxSize)) &&
		(h.Rotational == nil || *h.Rotational == d.Rotational)
}

// plainWWN removes what tools write before the digits of a worldwide name.
func plainWWN(s string) string {
	s = strings.ToLower(s)
	for _, prefix := range []string{"0x", "naa.", "eui."} {
		s = strings.TrimPrefix(s, prefix)
	}
	return s
}

// hasPath reports whether a path is the disk's name or a link that udev would create to it.
func hasPath(d trivet.Disk, path string) bool {
	if id, ok := strings.CutPrefix(path, "/dev/disk/by-id/"); ok {
		return hasID(d, id)
	}
	if location, ok := strings.CutPrefix(path, "/dev/disk/by-path/"); ok {
		return d.Location != "" && location == d.Location
	}
	return path == d.Name
}

// hasID knows the links that udev makes of a serial number ("ata-MODEL_SERIAL", "virtio-SERIAL") or of a worldwide
// name.
func hasID(d trivet.Disk, id string) bool {
	if d.WWN != "" && (id == "wwn-"+d.WWN || id == "nvme-"+d.WWN) {
		return true
	}
	serial := strings.ReplaceAll(d.Serial, " ", "_")
	return serial != "" && (strings.HasSuffix(id, "_"+serial) || strings.HasSuffix(id, "-"+serial))
}

// describeDisks lists disks with the facts that hints can use: "/dev/sda (1TB, SPINNER, serial WD-1234, rotational)".
func describeDisks(disks []trivet.Disk) string {
	if len(disks) == 0 {
		return "no disks"
	}
	var out []string
	for _, d := range disks {
		facts := []string{readableSize(d.Bytes)}
		for _, fact := range []struct {
			text string
			is   bool
		}{
			{d.Model, d.Model != ""}, {"serial " + d.Serial, d.Serial != ""}, {"wwn " + d.WWN, d.WWN != ""},
			{"hctl " + d.HCTL, d.HCTL != ""}, {d.Location, d.Location != ""}, {d.Bus, d.Bus == "usb"},
			{"rotational", d.Rotational}, {"removable", d.Removable}, {"read-only", d.ReadOnly},
		} {
			if fact.is {
				facts = append(facts, fact.text)
			}
		}
		out = append(out, fmt.Sprintf("%s (%s)", d.Name, strings.Join(facts, ", ")))
	}
	return strings.Join(out, ", ")
}

// readableSize rounds as the makers of disks do: "480GB".
func readableSize(n int64) string {
	switch {
	case n >= 10e12:
		return fmt.Sprintf("%dTB", n/1e12)
	case n >= 10e9:
		return fmt.Sprintf("%dGB", n/1e9)
	}
	return fmt.Sprintf("%dMB", n/1e6)
}
