// Package inventory reads a machine's hardware from sysfs and procfs, and the health of its disks from them.
//
// Its functions read below a root directory; in a machine it is os.DirFS("/"). What cannot be read is left empty: a
// machine with unusual hardware must still be enrolled.
package inventory

import (
	"bufio"
	"context"
	"io/fs"
	"path"
	"runtime"
	"strconv"
	"strings"

	"github.com/trivet-project/trivet"
)

// Limits of one machine's inventory.
const (
	maxDisks = 256
	maxNICs  = 64
	maxText  = 256
)

// Read returns the machine's inventory, without the health of its disks ([ReadHealth]). ctx limits the query to the
// BMC.
func Read(ctx context.Context, root fs.FS) trivet.Inventory {
	inv := trivet.Inventory{
		Arch:            runtime.GOARCH,
		Vendor:          text(root, "sys/class/dmi/id/sys_vendor"),
		Product:         text(root, "sys/class/dmi/id/product_name"),
		Serial:          text(root, "sys/class/dmi/id/product_serial"),
		UUID:            strings.ToLower(text(root, "sys/class/dmi/id/product_uuid")),
		Firmware:        "bios",
		FirmwareVersion: text(root, "sys/class/dmi/id/bios_version"),
		FirmwareDate:    text(root, "sys/class/dmi/id/bios_date"),
		MemoryMB:        memory(root),
		Disks:           Disks(root),
		NICs:            nics(root),
	}
	inv.BMC, inv.BMCVersion = bmc(ctx, root)
	for i := range inv.NICs {
		inv.NICs[i].FirmwareVersion = nicFirmware(inv.NICs[i].Name)
	}
	if isThere(root, "sys/firmware/efi") {
		inv.Firmware = "uefi"
	}
	inv.CPU, inv.Cores = cpu(root)
	return inv
}

// cpu returns the first processor's model and the number of cores, hyperthreads counted once.
func cpu(root fs.FS) (model string, cores int) {
	seen := map[string]bool{}
	var socket string
	threads := 0
	eachLine(root, "proc/cpuinfo", func(key, value string) {
		switch key {
		case "processor":
			threads++
		case "model name":
			model = clip(value)
		case "physical id":
			socket = value
		case "core id":
			seen[socket+"/"+value] = true
		}
	})
	if len(seen) > 0 {
		return model, len(seen)
	}
	return model, threads
}

func memory(root fs.FS) (mb int64) {
	eachLine(root, "proc/meminfo", func(key, value string) {
		if key == "MemTotal" {
			kb, _ := strconv.ParseInt(strings.TrimSuffix(value, " kB"), 10, 64)
			mb = kb / 1024
		}
	})
	return mb
}

// nics returns the ports that are hardware.
func nics(root fs.FS) []trivet.NICInfo {
	var out []trivet.NICInfo
	entries, _ := fs.ReadDir(root, "sys/class/net")
	for _, e := range entries {
		dir := path.Join("sys/class/net", e.Name())
		mac, err := trivet.CanonicalMAC(text(root, dir+"/address"))
		if err != nil || !isThere(root, dir+"/device") || len(out) == maxNICs {
			continue
		}
		driver, _ := fs.ReadLink(root, dir+"/device/driver")
		out = append(out, trivet.NICInfo{
			Name: e.Name(), MAC: mac, Driver: driverName(driver),
			Link: text(root, dir+"/carrier") == "1",
		})
	}
	return out
}

// text is a sysfs file's content as one bounded line; empty when it cannot be read.
func text(root fs.FS, name string) string {
	b, err := fs.ReadFile(root, name)
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(b), "\n")
	return clip(strings.TrimSpace(strings.Trim(line, "\x00")))
}

func number(root fs.FS, name string) int64 {
	n, _ := strconv.ParseInt(text(root, name), 10, 64)
	return n
}

func clip(s string) string {
	return strings.ToValidUTF8(s[:min(len(s), maxText)], "?")
}

func isThere(root fs.FS, name string) bool {
	_, err := fs.Stat(root, name)
	return err == nil
}

// eachLine calls f for the lines "key : value" of a file.
func eachLine(root fs.FS, name string, f func(key, value string)) {
	file, err := root.Open(name)
	if err != nil {
		return
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		key, value, _ := strings.Cut(lines.Text(), ":")
		f(strings.TrimSpace(key), strings.TrimSpace(value))
	}
}

// driverName is the end of the link from a device to its driver; a device may have none.
func driverName(link string) string {
	if link == "" {
		return ""
	}
	return path.Base(link)
}
