package actionspec

import (
	"errors"
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
)

// server is a machine with a mirrored pair, a large hard disk, a USB stick, a read-only disk and the journal's disk.
var server = []trivet.Disk{
	{Name: "/dev/nvme0n1", Bytes: 960e9, Model: "FAST 960", Serial: "N2", WWN: "eui.0025385b21404321",
		Location: "pci-0000:02:00.0-nvme-1", Bus: "nvme"},
	{Name: "/dev/nvme1n1", Bytes: 960e9, Model: "FAST 960", Serial: "N1", Location: "pci-0000:01:00.0-nvme-1",
		Bus: "nvme"},
	{Name: "/dev/sda", Bytes: 4e12, Model: "SPINNER", Serial: "WD-1234", WWN: "0x50014ee2b5f0a1b2", HCTL: "0:0:1:0",
		Location: "pci-0000:00:1f.2-ata-1", Bus: "ata", Rotational: true},
	{Name: "/dev/sdb", Bytes: 16e9, Serial: "STICK", Bus: "usb", Removable: true},
	{Name: "/dev/sdc", Bytes: 32e9, Serial: "INTERNAL USB", Bus: "usb"},
	{Name: "/dev/sdd", Bytes: 1e9, Serial: "RO", ReadOnly: true},
	{Name: "/dev/sde", Bytes: 2e9, Serial: "JOURNAL"},
}

func TestEachHintSelectsADisk(t *testing.T) {
	yes, no := true, false
	for _, c := range []struct {
		hints trivet.DiskHints
		want  string
	}{
		{trivet.DiskHints{}, "/dev/nvme1n1"}, // smallest; of the two the first by location
		{trivet.DiskHints{Path: "/dev/nvme0n1"}, "/dev/nvme0n1"},
		{trivet.DiskHints{Path: "/dev/disk/by-id/ata-SPINNER_WD-1234"}, "/dev/sda"},
		{trivet.DiskHints{Path: "/dev/disk/by-id/wwn-0x50014ee2b5f0a1b2"}, "/dev/sda"},
		{trivet.DiskHints{Path: "/dev/disk/by-id/nvme-eui.0025385b21404321"}, "/dev/nvme0n1"},
		{trivet.DiskHints{Path: "/dev/disk/by-id/usb-INTERNAL_USB"}, "/dev/sdc"},
		{trivet.DiskHints{Path: "/dev/disk/by-path/pci-0000:02:00.0-nvme-1"}, "/dev/nvme0n1"},
		{trivet.DiskHints{Serial: "N2"}, "/dev/nvme0n1"},
		{trivet.DiskHints{Serial: "STICK"}, "/dev/sdb"},
		{trivet.DiskHints{Serial: "JOURNAL"}, "/dev/sde"},
		{trivet.DiskHints{WWN: "0x50014ee2b5f0a1b2"}, "/dev/sda"},
		{trivet.DiskHints{WWN: "50014EE2B5F0A1B2"}, "/dev/sda"},
		{trivet.DiskHints{WWN: "naa.50014ee2b5f0a1b2"}, "/dev/sda"},
		{trivet.DiskHints{WWN: "0025385b21404321"}, "/dev/nvme0n1"},
		{trivet.DiskHints{HCTL: "0:0:1:0"}, "/dev/sda"},
		{trivet.DiskHints{Model: "spin"}, "/dev/sda"},
		{trivet.DiskHints{MinSize: 1e12}, "/dev/sda"},
		{trivet.DiskHints{Rotational: &yes}, "/dev/sda"},
		{trivet.DiskHints{Rotational: &no, Serial: "N1"}, "/dev/nvme1n1"},
		{trivet.DiskHints{Model: "FAST", Path: "/dev/disk/by-path/pci-0000:01:00.0-nvme-1"}, "/dev/nvme1n1"},
	} {
		got, err := ChooseDisk(server, c.hints, "/dev/sde")
		if err != nil || got.Name != c.want {
			t.Errorf("%s: %s, error %v; want %s", c.hints, got.Name, err, c.want)
		}
	}
	small := []trivet.Disk{{Name: "/dev/vda", Bytes: 10e9}}
	if got, err := ChooseDisk(small, trivet.DiskHints{}); err != nil || got.Name != "/dev/vda" {
		t.Errorf("the only disk: %+v, %v", got, err)
	}
	if got, err := ChooseDisk(small, trivet.DiskHints{MaxSize: 10e9}); err != nil || got.Name != "/dev/vda" {
		t.Errorf("a bound that is included: %+v, %v", got, err)
	}
}

func TestHintsThatMatchNoneOrSeveralListTheDisks(t *testing.T) {
	yes := true
	for _, c := range []struct {
		disks []trivet.Disk
		hints trivet.DiskHints
		err   error
		want  []string
	}{
		{server, trivet.DiskHints{Model: "FAST"}, ErrAmbiguousDisk,
			[]string{"{model: FAST}", "/dev/nvme0n1 (960GB, FAST 960, " +
				"serial N2, wwn eui.0025385b21404321, pci-0000:02:00.0-nvme-1)", "/dev/nvme1n1 (",
				"add hints to spec.disk"}},
		{server, trivet.DiskHints{MinSize: 900e9}, ErrAmbiguousDisk, []string{"{minSize: 900GB}", "/dev/sda ("}},
		{server, trivet.DiskHints{MaxSize: 100e9}, ErrNoMatch,
			[]string{"{maxSize: 100GB}", "/dev/sdd (1000MB, serial RO, read-only)"}},
		{server, trivet.DiskHints{Serial: "RO"}, ErrNoMatch, []string{"{serial: RO}"}},
		{server, trivet.DiskHints{Serial: "X"}, ErrNoMatch, []string{"/dev/sda (4000GB, SPINNER, serial WD-1234",
			"set spec.disk"}},
		{server, trivet.DiskHints{Path: "/dev/sda1"}, ErrNoMatch, nil},
		{server, trivet.DiskHints{Path: "/dev/disk/by-id/ata-SPINNER_WD-1234-part1"}, ErrNoMatch, nil},
		{server, trivet.DiskHints{Path: "/dev/disk/by-id/wwn-0x50014ee2b5f0a1b2-part1"}, ErrNoMatch, nil},
		{server, trivet.DiskHints{Path: "/dev/disk/by-id/"}, ErrNoMatch, nil},
		{server, trivet.DiskHints{Path: "/dev/disk/by-path/"}, ErrNoMatch, nil},
		{server, trivet.DiskHints{WWN: "0x"}, ErrNoMatch, nil},
		{server, trivet.DiskHints{Serial: "WD-1234", Rotational: new(bool)}, ErrNoMatch, []string{"rotational: false"}},
		{server[3:6], trivet.DiskHints{}, ErrNoMatch, []string{"not removable and not on USB",
			"/dev/sdb (16GB, serial STICK, usb, removable)"}},
		{server[3:4], trivet.DiskHints{MinSize: 1e9}, ErrNoMatch, nil},
		{nil, trivet.DiskHints{}, ErrNoDisk, []string{"found none"}},
		{nil, trivet.DiskHints{Rotational: &yes}, ErrNoDisk, []string{"found none"}},
	} {
		_, err := ChooseDisk(c.disks, c.hints, "/dev/sde")
		if !errors.Is(err, c.err) {
			t.Errorf("%s: %v; want %v", c.hints, err, c.err)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v\nwant: %s", c.hints, err, want)
			}
		}
	}
}

// The kernel numbers disks as it finds them: the choice must not depend on their order or names.
func TestTheDefaultDiskDoesNotDependOnTheKernelsOrder(t *testing.T) {
	a := trivet.Disk{Name: "/dev/sda", Bytes: 1e12, Location: "pci-0000:00:1f.2-ata-1", Serial: "A"}
	b := trivet.Disk{Name: "/dev/sdb", Bytes: 1e12, Location: "pci-0000:00:1f.2-ata-2", Serial: "B"}
	swapped := []trivet.Disk{a, b}
	swapped[0].Name, swapped[1].Name = b.Name, a.Name
	for _, disks := range [][]trivet.Disk{{a, b}, {b, a}, swapped} {
		if got, err := ChooseDisk(disks, trivet.DiskHints{}); err != nil || got.Serial != "A" {
			t.Errorf("%+v, %v", got, err)
		}
	}
}
