package e2e_test

import (
	"bytes"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/lab/vm"
)

// A released machine netboots the installer, which wipes all of its disks and powers it off: nothing is left on them,
// whatever they were. Its inventory has what they report of themselves. This kernel has no driver of SATA.
func TestReleaseWipesAMachine(t *testing.T) {
	t.Parallel()
	s := newBareSite(t, "e2e-release", headAddress, "--dhcp", "lab0")
	s.apply(networkYAML)
	disks := []vm.Disk{{Path: s.path("virtio.disk"), SizeMB: 512}, {Path: s.path("scsi.disk"), SizeMB: 256, Bus: "scsi"},
		{Path: s.path("nvme.disk"), SizeMB: 256, Bus: "nvme", Serial: "N1"}}
	for _, d := range disks {
		fillDisk(t, d.Path, int64(d.SizeMB)<<20)
	}
	mac, err := net.ParseMAC("52:54:00:77:00:31")
	if err != nil {
		t.Fatal(err)
	}
	m, err := vm.NewMachine(t.Context(), s.net, vm.Config{Name: "rel1", MAC: mac, Firmware: vm.UEFIPXE,
		Dir: s.path("rel1"), MemoryMB: 1024, Disks: disks})
	if err != nil {
		t.Fatal(err)
	}
	b := &box{Machine: m, s: s, name: "rel1"}
	t.Cleanup(func() { _ = m.Close() })
	t.Cleanup(b.printLog)
	s.apply("kind: Machine\nname: rel1\nspec: {arch: amd64, nics: [{mac: \"52:54:00:77:00:31\"}]}\n")

	ended := make(chan error, 1)
	go func() {
		_, err := s.try("release", "rel1", "--yes", "--wait")
		ended <- err
	}()
	s.waitFor("the machine is released", time.Minute, func() bool {
		out, err := s.output("get", "machines", "rel1", "-o", "yaml")
		return err == nil && strings.Contains(out, "state: releasing")
	})
	b.powerOn()
	select {
	case err := <-ended:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(15 * time.Minute):
		t.Fatal("the release has not ended")
	}
	why := s.trivet("why", "rel1")
	t.Log(why)
	if !strings.Contains(why, "Machine rel1 is available") || !strings.Contains(why, "released: its disks are wiped") {
		t.Error("the machine is not available")
	}
	for _, d := range disks {
		mustBeZero(t, d.Path)
	}
	run := strings.TrimSpace(s.trivet("get", "workflows", "--field", "spec.machine=rel1", "-o", "name"))
	log := s.trivet("logs", strings.TrimPrefix(run, "workflow/"))
	t.Log(log)
	for _, disk := range []string{"/dev/vda", "/dev/sda", "/dev/nvme0n1"} {
		if !strings.Contains(log, disk+": erased by ") {
			t.Errorf("the log does not say how %s was wiped", disk)
		}
	}
	mustHaveHealth(t, s.trivet("get", "machines", "rel1", "-o", "json"))
}

// mustHaveHealth fails unless the inventory of a machine has the health of its disk of NVMe, which QEMU's reports, and
// none of the others.
func mustHaveHealth(t *testing.T, machine string) {
	t.Helper()
	var m trivet.Machine
	if err := json.Unmarshal([]byte(machine), &m); err != nil {
		t.Fatal(err)
	}
	want := map[string]*trivet.DiskHealth{"virtio": nil,
		"nvme": {Passed: true, PowerOnHours: new(int64(0)), PercentUsed: new(int64(0)), MediaErrors: new(int64(0))}}
	got := map[string]*trivet.DiskHealth{}
	for _, d := range m.Status.Inventory.Disks {
		got[d.Bus] = d.Health
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the health of its disks: %s\n%s", diff, machine)
	}
}

// fillDisk creates a disk with a boot sector, and data that does not repeat.
func fillDisk(t *testing.T, path string, size int64) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := io.CopyN(f, rand.NewChaCha8([32]byte{1}), size); err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte{0x55, 0xaa}, 510); err != nil {
		t.Fatal(err)
	}
}

func mustBeZero(t *testing.T, path string) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, 1<<20)
	for off := int64(0); ; off += int64(len(b)) {
		n, err := f.ReadAt(b, off)
		if len(bytes.Trim(b[:n], "\x00")) > 0 {
			t.Fatalf("%s has data within a MiB of %d", path, off)
		}
		if err != nil {
			return
		}
	}
}
