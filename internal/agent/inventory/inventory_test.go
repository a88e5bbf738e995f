package inventory

import (
	"io/fs"
	"maps"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/actionspec"
)

// box is a machine with two processors of one core and two threads, two ports, and disks of several kinds.
func box() fstest.MapFS {
	m := fstest.MapFS{}
	for name, data := range map[string]string{
		"sys/class/dmi/id/sys_vendor":     "Acme\n",
		"sys/class/dmi/id/product_name":   "R1\n",
		"sys/class/dmi/id/product_serial": "SN1\n",
		"sys/class/dmi/id/bios_version":   "2.14.1\n",
		"sys/class/dmi/id/bios_date":      "03/14/2025\n",
		"sys/class/dmi/id/product_uuid":   "4C4C4544-0000-2010-8020-80C04F000000\n",
		"sys/firmware/efi/fw_vendor":      "",
		"proc/meminfo":                    "MemTotal:        8388608 kB\nMemFree: 1 kB\n",
		"proc/cpuinfo": "processor\t: 0\nmodel name\t: Fast CPU\nphysical id\t: 0\ncore id\t: 0\n\n" +
			"processor\t: 1\nmodel name\t: Fast CPU\nphysical id\t: 0\ncore id\t: 0\n\n" +
			"processor\t: 2\nphysical id\t: 1\ncore id\t: 0\n",
		"sys/class/net/eth0/address":            "52:54:00:00:00:01\n",
		"sys/class/net/eth0/carrier":            "1\n",
		"sys/class/net/eth0/device/vendor":      "",
		"sys/class/net/eth1/address":            "52:54:00:00:00:02\n",
		"sys/class/net/eth1/device/vendor":      "",
		"sys/class/net/lo/address":              "00:00:00:00:00:00\n",
		"sys/class/net/br0/address":             "52:54:00:00:00:03\n",
		"sys/block/sda/size":                    "2097152\n",
		"sys/block/sda/device/model":            "SPINNER  \n",
		"sys/block/sda/device/rev":              "A5GH\n",
		"sys/block/sda/device/vpd_pg80":         "\x00\x80\x00\x08  WD-1234",
		"sys/block/sda/device/wwid":             "naa.50014ee2b5f0a1b2\n",
		"sys/block/sda/queue/rotational":        "1\n",
		"sys/block/nvme0n1/size":                "1048576\n",
		"sys/block/nvme0n1/device/serial":       "S4X\n",
		"sys/block/nvme0n1/device/firmware_rev": "GDC5602Q\n",
		"sys/block/nvme0n1/wwid":                "eui.0025385b21404321\n",
		"sys/class/ata_port/ata3/port_no":       "1\n",
		"sys/block/sdb/size":                    "1024\n",
		"sys/block/sdb/removable":               "1\n",
		"sys/block/sdc/size":                    "0\n",
		"sys/block/vda/size":                    "524288\n",
		"sys/block/vda/serial":                  "disk-0\n",
		"sys/block/loop0/size":                  "1024\n",
		"sys/block/dm-0/size":                   "1024\n",
		"sys/block/nvme0c0n1/size":              "1048576\n",
		"sys/block/nvme0c0n1/hidden":            "1\n",
		"sys/class/net/eth0/device/uevent":      "",
		"sys/class/net/eth0/device/modalias":    "",
	} {
		m[name] = &fstest.MapFile{Data: []byte(data)}
	}
	for name, dir := range map[string]string{
		"sda":     "pci0000:00/0000:00:1f.2/ata3/host2/target2:0:0/2:0:0:0/block/sda",
		"sdb":     "pci0000:00/0000:00:14.0/usb1/1-2/1-2:1.0/host6/target6:0:0/6:0:0:0/block/sdb",
		"nvme0n1": "pci0000:00/0000:00:1d.0/0000:01:00.0/nvme/nvme0/nvme0n1",
		"vda":     "pci0000:00/0000:00:05.0/virtio2/block/vda",
	} {
		linkDisk(m, name, dir)
	}
	m["sys/class/net/eth0/device/driver"] = &fstest.MapFile{Data: []byte("../../../bus/pci/drivers/ixgbe"),
		Mode: fs.ModeSymlink}
	return m
}

// linkDisk moves a disk's files to its device's directory, with a link in sys/block as the kernel has it.
func linkDisk(m fstest.MapFS, name, device string) {
	for file, data := range maps.Clone(m) {
		if rest, ok := strings.CutPrefix(file, "sys/block/"+name+"/"); ok {
			m["sys/devices/"+device+"/"+rest] = data
			delete(m, file)
		}
	}
	m["sys/block/"+name] = &fstest.MapFile{Data: []byte("../devices/" + device), Mode: fs.ModeSymlink}
}

func TestRead(t *testing.T) {
	got := Read(t.Context(), box())
	want := trivet.Inventory{
		Arch: runtime.GOARCH, Vendor: "Acme", Product: "R1", Serial: "SN1",
		UUID:     "4c4c4544-0000-2010-8020-80c04f000000",
		Firmware: "uefi", FirmwareVersion: "2.14.1", FirmwareDate: "03/14/2025", CPU: "Fast CPU", Cores: 2, MemoryMB: 8192,
		Disks: []trivet.Disk{
			{Name: "/dev/nvme0n1", Bytes: 512 << 20, Serial: "S4X", Firmware: "GDC5602Q", WWN: "eui.0025385b21404321",
				Location: "pci-0000:01:00.0-nvme-1", Bus: "nvme"},
			{Name: "/dev/sda", Bytes: 1 << 30, Model: "SPINNER", Serial: "WD-1234", Firmware: "A5GH", WWN: "0x50014ee2b5f0a1b2",
				HCTL:     "2:0:0:0",
				Location: "pci-0000:00:1f.2-ata-1", Bus: "ata", Rotational: true},
			{Name: "/dev/sdb", Bytes: 512 << 10, HCTL: "6:0:0:0", Bus: "usb", Removable: true},
			{Name: "/dev/vda", Bytes: 256 << 20, Serial: "disk-0", Location: "pci-0000:00:05.0", Bus: "virtio"},
		},
		NICs: []trivet.NICInfo{
			{Name: "eth0", MAC: "52:54:00:00:00:01", Link: true, Driver: "ixgbe"},
			{Name: "eth1", MAC: "52:54:00:00:00:02"},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestAMachineWithoutSysfs(t *testing.T) {
	got := Read(t.Context(), fstest.MapFS{})
	if diff := cmp.Diff(trivet.Inventory{Arch: runtime.GOARCH, Firmware: "bios"}, got); diff != "" {
		t.Error(diff)
	}
}

// The machine that runs the test has at least a processor and memory.
func TestReadThisMachine(t *testing.T) {
	got := Read(t.Context(), os.DirFS("/"))
	if got.Cores == 0 || got.MemoryMB == 0 {
		t.Errorf("%+v", got)
	}
}

// A port has the speed, the counters and the place of its device.
func TestPorts(t *testing.T) {
	m := box()
	for name, data := range map[string]string{"speed": "25000\n", "duplex": "full\n", "carrier_down_count": "2\n",
		"statistics/rx_crc_errors": "1\n", "statistics/rx_frame_errors": "2\n", "statistics/tx_carrier_errors": "4\n",
		"statistics/rx_errors": "9\n", "statistics/tx_errors": "1\n", "statistics/rx_dropped": "7\n",
		"statistics/rx_bytes": "1000\n", "statistics/tx_bytes": "50\n"} {
		m["sys/class/net/eth0/"+name] = &fstest.MapFile{Data: []byte(data)}
	}
	m["sys/class/net/eth1/speed"] = &fstest.MapFile{Data: []byte("-1\n")}
	m["sys/class/net/eth1/duplex"] = &fstest.MapFile{Data: []byte("unknown\n")}
	want := []Port{
		{NICInfo: trivet.NICInfo{Name: "eth0", MAC: "52:54:00:00:00:01", Link: true, Driver: "ixgbe"}, Speed: 25000,
			Duplex: "full", Damaged: 7, Lost: 2, Received: 1000, Sent: 50, Errors: 10, Dropped: 7},
		{NICInfo: trivet.NICInfo{Name: "eth1", MAC: "52:54:00:00:00:02"}},
	}
	if diff := cmp.Diff(want, Ports(m)); diff != "" {
		t.Error(diff)
	}
}

// The driver of a port that exists says its name and version, by the kernel's own structure; another port has none.
func TestFirmwareOfAPort(t *testing.T) {
	if got := nicFirmware("lo"); got != "" {
		t.Errorf("the loopback port has the firmware %q", got)
	}
	if got := nicFirmware("a-name-that-is-far-too-long"); got != "" {
		t.Errorf("no port has the firmware %q", got)
	}
}

// What the inventory reports is what hints match.
func TestHintsMatchTheInventory(t *testing.T) {
	disks := Disks(box())
	for _, c := range []struct {
		hints trivet.DiskHints
		want  string
	}{
		{trivet.DiskHints{}, "/dev/vda"},
		{trivet.DiskHints{Serial: "S4X"}, "/dev/nvme0n1"},
		{trivet.DiskHints{WWN: "0x50014ee2b5f0a1b2"}, "/dev/sda"},
		{trivet.DiskHints{HCTL: "2:0:0:0"}, "/dev/sda"},
		{trivet.DiskHints{Path: "/dev/disk/by-id/ata-SPINNER_WD-1234"}, "/dev/sda"},
		{trivet.DiskHints{Path: "/dev/disk/by-id/wwn-0x50014ee2b5f0a1b2"}, "/dev/sda"},
		{trivet.DiskHints{Path: "/dev/disk/by-id/nvme-eui.0025385b21404321"}, "/dev/nvme0n1"},
		{trivet.DiskHints{Path: "/dev/disk/by-id/virtio-disk-0"}, "/dev/vda"},
		{trivet.DiskHints{Path: "/dev/disk/by-path/pci-0000:00:05.0"}, "/dev/vda"},
	} {
		got, err := actionspec.ChooseDisk(disks, c.hints)
		if err != nil || got.Name != c.want {
			t.Errorf("%s chose %q, error %v; want %q", c.hints, got.Name, err, c.want)
		}
	}
}
