package inventory

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/trivet-project/trivet"
)

// sectorBytes is sysfs's unit of sizes, whatever a disk's own is.
const sectorBytes = 512

// notDisks begin the names of block devices that are not hardware.
var notDisks = []string{"loop", "ram", "zram", "dm-", "md", "nbd", "sr", "fd"}

// Disks are the whole disks, in the order of their names.
func Disks(root fs.FS) []trivet.Disk {
	var out []trivet.Disk
	entries, _ := fs.ReadDir(root, "sys/block")
	for _, e := range entries {
		name := e.Name()
		dir := path.Join("sys/block", name)
		bytes := number(root, dir+"/size") * sectorBytes
		isOther := slices.ContainsFunc(notDisks, func(p string) bool { return strings.HasPrefix(name, p) })
		if isOther || bytes <= 0 || len(out) == maxDisks || text(root, dir+"/hidden") == "1" {
			continue
		}
		out = append(out, trivet.Disk{
			Name:       "/dev/" + name,
			Bytes:      bytes,
			Model:      text(root, dir+"/device/model"),
			Serial:     cmp.Or(text(root, dir+"/serial"), text(root, dir+"/device/serial"), serialOfPage(root, dir)),
			Rotational: text(root, dir+"/queue/rotational") == "1",
			Removable:  text(root, dir+"/removable") == "1",
			ReadOnly:   text(root, dir+"/ro") == "1",
		})
	}
	return out
}

// serialOfPage is a SCSI disk's serial number: vital product data, page 0x80, behind a header of four bytes.
func serialOfPage(root fs.FS, dir string) string {
	b, err := fs.ReadFile(root, dir+"/device/vpd_pg80")
	if err != nil || len(b) < 4 {
		return ""
	}
	return clip(strings.TrimSpace(strings.Trim(string(b[4:]), "\x00")))
}

// ErrNoDisk says that the machine has no disk of that name, or none to install on.
var ErrNoDisk = errors.New("no such disk")

// Choose gives the disk that a name means: a device ("/dev/sda"), what udev would link to one by its serial number or
// worldwide name ("/dev/disk/by-id/..."), "serial:" and a serial number, or, where the name is empty, the smallest one that
// can be installed on. Disks in avoid are never chosen for their size.
func Choose(root fs.FS, disks []trivet.Disk, name string, avoid ...string) (trivet.Disk, error) {
	if name == "" {
		return smallest(disks, avoid)
	}
	i := slices.IndexFunc(disks, func(d trivet.Disk) bool { return isNamed(root, d, name) })
	if i < 0 {
		return trivet.Disk{}, fmt.Errorf("%w: %s (there are %s)", ErrNoDisk, name, list(disks))
	}
	return disks[i], nil
}

func smallest(disks []trivet.Disk, avoid []string) (trivet.Disk, error) {
	var best *trivet.Disk
	for i := range disks {
		d := &disks[i]
		if d.ReadOnly || d.Removable || slices.Contains(avoid, d.Name) {
			continue
		}
		if best == nil || d.Bytes < best.Bytes {
			best = d
		}
	}
	if best == nil {
		return trivet.Disk{}, fmt.Errorf("%w: none that can be installed on (there are %s)", ErrNoDisk, list(disks))
	}
	return *best, nil
}

func isNamed(root fs.FS, d trivet.Disk, name string) bool {
	if id, ok := strings.CutPrefix(name, "/dev/disk/by-id/"); ok {
		return isID(root, d, id)
	}
	serial, ok := strings.CutPrefix(name, "serial:")
	return name == d.Name || ok && serial == d.Serial && serial != ""
}

// isID knows the links that udev makes of a serial number ("ata-MODEL_SERIAL", "virtio-SERIAL") or of a worldwide name.
func isID(root fs.FS, d trivet.Disk, id string) bool {
	dir := path.Join("sys/block", path.Base(d.Name))
	wwid := cmp.Or(text(root, dir+"/wwid"), text(root, dir+"/device/wwid"))
	if _, hex, ok := strings.Cut(wwid, "naa."); ok && id == "wwn-0x"+hex {
		return true
	}
	if wwid != "" && id == "nvme-"+wwid {
		return true
	}
	serial := strings.ReplaceAll(d.Serial, " ", "_")
	return serial != "" && (strings.HasSuffix(id, "_"+serial) || strings.HasSuffix(id, "-"+serial))
}

func list(disks []trivet.Disk) string {
	if len(disks) == 0 {
		return "none"
	}
	names := make([]string, len(disks))
	for i, d := range disks {
		names[i] = d.Name
	}
	return strings.Join(names, ", ")
}
