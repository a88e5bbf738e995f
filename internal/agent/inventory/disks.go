package inventory

import (
	"cmp"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/trivet-project/trivet"
)

// sectorBytes is sysfs's unit of sizes, whatever a disk's own is.
const sectorBytes = 512

// notDisks are prefixes of block devices that are not hardware.
var notDisks = []string{"loop", "ram", "zram", "dm-", "md", "nbd", "sr", "fd"}

// Disks returns the whole disks, in the order of their names.
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
		device := deviceOf(root, name)
		out = append(out, trivet.Disk{
			Name:       "/dev/" + name,
			Bytes:      bytes,
			Model:      text(root, dir+"/device/model"),
			Serial:     cmp.Or(text(root, dir+"/serial"), text(root, dir+"/device/serial"), serialOfPage(root, dir)),
			Firmware:   cmp.Or(text(root, dir+"/device/firmware_rev"), text(root, dir+"/device/rev")),
			WWN:        wwn(cmp.Or(text(root, dir+"/wwid"), text(root, dir+"/device/wwid"))),
			HCTL:       device.hctl(),
			Location:   device.location(root),
			Bus:        device.bus(),
			Rotational: text(root, dir+"/queue/rotational") == "1",
			Removable:  text(root, dir+"/removable") == "1",
			ReadOnly:   text(root, dir+"/ro") == "1",
		})
	}
	return out
}

// serialOfPage returns a SCSI disk's serial number: vital product data, page 0x80, after a header of four bytes.
func serialOfPage(root fs.FS, dir string) string {
	b, err := fs.ReadFile(root, dir+"/device/vpd_pg80")
	if err != nil || len(b) < 4 {
		return ""
	}
	return clip(strings.TrimSpace(strings.Trim(string(b[4:]), "\x00")))
}

// wwn returns a worldwide name as udev and lsblk write it. The kernel's other identifiers ("t10.ATA ...") are none.
func wwn(wwid string) string {
	if hex, ok := strings.CutPrefix(wwid, "naa."); ok {
		return "0x" + hex
	}
	if strings.HasPrefix(wwid, "t10.") || strings.ContainsAny(wwid, " ") {
		return ""
	}
	return wwid
}

// device is a disk's place in the machine: the elements of its path in /sys/devices, such as "pci0000:00",
// "0000:00:1f.2", "ata1", "host0", "target0:0:0", "0:0:0:0".
type device struct {
	name  string // "sda"
	parts []string
}

func deviceOf(root fs.FS, name string) device {
	link, _ := fs.ReadLink(root, "sys/block/"+name)
	return device{name, strings.Split(path.Dir(link), "/")}
}

var (
	pciForm  = regexp.MustCompile(`^[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$`)
	hctlForm = regexp.MustCompile(`^[0-9]+:[0-9]+:[0-9]+:[0-9]+$`)
	ataForm  = regexp.MustCompile(`^ata[0-9]+$`)
)

// last returns the last element of a form; empty if there is none.
func (d device) last(form *regexp.Regexp) string {
	for _, part := range slices.Backward(d.parts) {
		if form.MatchString(part) {
			return part
		}
	}
	return ""
}

func (d device) hctl() string { return d.last(hctlForm) }

func (d device) bus() string {
	for _, bus := range []struct{ name, prefix string }{
		{"usb", "usb"}, {"ata", "ata"}, {"nvme", "nvme"}, {"virtio", "virtio"}, {"mmc", "mmc"},
	} {
		if slices.ContainsFunc(d.parts, func(part string) bool { return strings.HasPrefix(part, bus.prefix) }) {
			return bus.name
		}
	}
	if d.hctl() != "" {
		return "scsi"
	}
	return ""
}

// location returns the disk's name in /dev/disk/by-path for buses with simple names; empty for others.
func (d device) location(root fs.FS) string {
	pci, bus := d.last(pciForm), d.bus()
	switch {
	case pci == "":
		return ""
	case bus == "virtio" && d.hctl() == "":
		return "pci-" + pci
	case bus == "nvme":
		return "pci-" + pci + "-nvme-" + cmp.Or(text(root, "sys/block/"+d.name+"/nsid"), "1")
	case bus == "ata":
		ata := d.last(ataForm)
		port := text(root, path.Join("sys/class/ata_port", ata, "port_no"))
		return "pci-" + pci + "-ata-" + cmp.Or(port, strings.TrimPrefix(ata, "ata"))
	}
	return ""
}
