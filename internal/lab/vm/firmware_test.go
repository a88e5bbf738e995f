package vm_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trivet-project/trivet/internal/lab/vm"
	"github.com/trivet-project/trivet/internal/lab/vm/vmtest"
	"github.com/trivet-project/trivet/internal/platform"
	"github.com/trivet-project/trivet/test/e2e/debimage"
)

// The scripts that start the installer OS, or boot from the disk. On UEFI, if iPXE fails, the firmware tries the next
// entry of its boot order (if iPXE succeeds, the firmware opens its menu); on BIOS iPXE boots from the disk.
var (
	install = []string{
		"kernel " + vmtest.URL + "/vmlinuz initrd=initrd.img console=ttyS0 loglevel=5 panic=30 " +
			"BOOTIF=${netX/mac} test.after=reboot",
		"initrd " + vmtest.URL + "/initrd.img",
		"boot",
	}
	local = []string{
		"iseq ${platform} efi && exit 1 ||",
		"sanboot --no-describe --drive 0x80 ||",
		"exit 1",
	}
)

// Real firmware tries the network first at power-on, after a reboot of the installer OS, after a reset and after a
// power cycle; the script decides whether the installer OS or the system on the disk starts.
func TestFirmware(t *testing.T) {
	dir := t.TempDir()
	vmtest.NewPlatform(t, dir, platform.KernelCloud, "../../agent/installer/osinit/testdata/agent")
	image, err := debimage.Build(t.Context(), func(line string) { t.Log(line) })
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		firmware vm.Firmware
		install  []string // the requests of a boot of the installer OS
		local    []string // the requests of a boot from the disk
	}{
		{vm.BIOS, []string{"/boot.ipxe", "/vmlinuz", "/initrd.img"}, []string{"/boot.ipxe"}},
		// iPXE is loaded by TFTP. If its script fails, the firmware tries HTTP boot before the disk.
		{vm.UEFIPXE, []string{"/boot.ipxe", "/vmlinuz", "/initrd.img"},
			[]string{"/boot.ipxe", "/snponly.efi", "/boot.ipxe"}},
		{vm.UEFIHTTP, []string{"/snponly.efi", "/boot.ipxe", "/vmlinuz", "/initrd.img"},
			[]string{"/snponly.efi", "/boot.ipxe"}},
	} {
		t.Run(string(tc.firmware), func(t *testing.T) {
			if tc.firmware != vm.BIOS && os.Getenv("TRIVET_SOAK") == "" {
				t.Skip("runs in make soak; internal/netboot and test/e2e boot by this firmware in make test")
			}
			rack := vmtest.NewRack(t, "vm-"+string(tc.firmware))
			rack.Serve("vmlinuz", filepath.Join(dir, "vmlinuz"))
			rack.Serve("initrd.img", filepath.Join(dir, "initrd.img"))
			m := rack.Machine(vm.Config{
				Name: "m1", Firmware: tc.firmware, UUID: "5ea1ab1e-0000-4000-8000-0000000000aa", Serial: "SN-1",
				Disks: []vm.Disk{{Path: filepath.Join(t.TempDir(), "disk.qcow2"), Base: image.Raw, SizeMB: 4096}},
			})
			start := time.Now()
			check := func(what string, want []string) {
				t.Helper()
				t.Logf("%s: %.1f s", what, time.Since(start).Seconds())
				if diff := cmp.Diff(want, rack.Requests()); diff != "" {
					t.Errorf("%s: fetched (-want +got):\n%s", what, diff)
				}
				start = time.Now()
			}
			rack.Script(install...)
			if err := m.PowerOn(t.Context()); err != nil {
				t.Fatal(err)
			}
			rack.Expect(m, `AGENT .* mac=52:54:00:00:00:01 addr=10\.77\.0\.\d+/24 gw=10\.77\.0\.1 `+
				`dns=\[10\.77\.0\.1\] domain=lab\.test`)
			check("power-on to agent", tc.install)
			rack.Script(local...) // the installer OS reboots
			rack.Expect(m, `Welcome to GRUB!`)
			check("reboot to disk", tc.local)
			_, before, errBefore := m.Starts(t.Context())
			errReset := m.Reset(t.Context())
			ons, resets, err := m.Starts(t.Context())
			if err := errors.Join(errBefore, errReset, err); err != nil {
				t.Fatal(err)
			}
			if before == 0 || resets != before+1 || ons != 1 {
				t.Errorf("%d resets after the reboot, then %d after power-on %d; want one more", before, resets, ons)
			}
			rack.Expect(m, `Welcome to GRUB!| login: `) // what it has fetched shows that it began again
			check("reset to disk", tc.local)
			rack.Script(install...)
			m.PowerOff()
			if err := m.PowerOn(t.Context()); err != nil {
				t.Fatal(err)
			}
			rack.Expect(m, `AGENT `)
			check("power cycle to agent", tc.install)
			if ons, resets, err := m.Starts(t.Context()); ons != 2 || resets != 0 || err != nil {
				t.Errorf("power-on %d, %d resets, %v; want the second one, and none", ons, resets, err)
			}
		})
	}
}

// Power is a state, not a toggle, and a machine's own power-off is detected.
func TestPower(t *testing.T) {
	rack := vmtest.NewRack(t, "vm-power")
	r := vmtest.NewPlatform(t, t.TempDir(), platform.KernelCloud, "../../agent/installer/osinit/testdata/agent")
	m := rack.Machine(vm.Config{
		Name: "m1", Firmware: vm.BIOS, Kernel: r.Kernel, Initrd: r.Initrd,
		Append: "console=ttyS0 loglevel=5 panic=30 test.after=off",
	})
	if err := m.Reset(t.Context()); err == nil {
		t.Error("a machine that is off was reset")
	}
	for range 2 {
		if err := m.PowerOn(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	rack.Expect(m, `AGENT `)
	rack.WaitOff(m)
	if m.Running() {
		t.Error("running after its own power-off")
	}
	m.SetBoot(vm.BootDisk)
	if err := m.PowerOn(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.PowerOff()
	m.PowerOff()
	if m.Running() {
		t.Error("running after power-off")
	}
	if slices.Contains(rack.Requests(), "/boot.ipxe") {
		t.Error("a machine with a kernel requested a boot script")
	}
}
