package osinit_test

import (
	"path/filepath"
	"testing"

	"github.com/trivet-project/trivet/internal/lab/vm"
	"github.com/trivet-project/trivet/internal/lab/vm/vmtest"
	"github.com/trivet-project/trivet/internal/platform"
)

const args = "console=ttyS0 loglevel=6 panic=30 BOOTIF=01-52-54-00-00-00-01 " +
	"trivet.url=https://10.0.0.1:1,https://10.0.0.2:1 "

// boot starts a machine whose agent performs some steps.
func boot(t *testing.T, rack *vmtest.Rack, r vmtest.Platform, c vm.Config, more string) *vm.Machine {
	t.Helper()
	c.Name, c.Firmware, c.Kernel, c.Initrd, c.Append = "m1", vm.BIOS, r.Kernel, r.Initrd, args+more
	m := rack.Machine(c)
	if err := m.PowerOn(t.Context()); err != nil {
		t.Fatal(err)
	}
	return m
}

func disk(t *testing.T, bus string) vm.Disk {
	return vm.Disk{Path: filepath.Join(t.TempDir(), "disk.img"), SizeMB: 400, Bus: bus}
}

// TestBoot shows what the agent finds: network, its arguments, devices, programs, drivers that the kernel asks for
// when a file system is first mounted, a root that can be pivoted; and that power off unmounts. The agent replaced
// another one, as by an upgrade.
func TestBoot(t *testing.T) {
	rack := vmtest.NewRack(t, "osinit-boot")
	r := vmtest.NewPlatform(t, t.TempDir(), platform.KernelCloud, "./testdata/former").WithAgent(t, "./testdata/agent")
	m := boot(t, rack, r, vm.Config{Disks: []vm.Disk{disk(t, "virtio")}}, "test.do=exec,ls,mkfs,pivot test.after=off")
	rack.Expect(m, `AGENT boot=[0-9a-f-]{36} if=eth0 mac=52:54:00:00:00:01 addr=10\.77\.0\.\d+/24 gw=10\.77\.0\.1 `+
		`dns=\[10\.77\.0\.1\] domain=lab\.test restarts=0 url=\[https://10\.0\.0\.1:1 https://10\.0\.0\.2:1\]`)
	for _, want := range []string{`DONE exec`, `LIST /dev: .* vda `, `DONE mkfs`, `LIST /: old`, `DONE pivot`} {
		rack.Expect(m, want)
	}
	rack.Expect(m, `Unmounting Filesystem`) // of XFS, which the agent left mounted
	rack.Expect(m, `Power down`)
	rack.WaitOff(m)
}

// TestGenericKernel boots Debian's kernel for all machines, with a real network card and every kind of disk. The
// health (SMART) of those that report it is read; that of virtio-scsi reports none.
func TestGenericKernel(t *testing.T) {
	rack := vmtest.NewRack(t, "osinit-generic")
	r := vmtest.NewPlatform(t, t.TempDir(), platform.KernelGeneric, "./testdata/agent")
	c := vm.Config{NIC: "e1000e", Disks: []vm.Disk{disk(t, "nvme"), disk(t, "scsi"), disk(t, "sata")}}
	m := boot(t, rack, r, c, "test.do=ls,smart test.after=off")
	rack.Expect(m, `AGENT .* if=eth0 mac=52:54:00:00:00:01 `)
	rack.Expect(m, `LIST /dev: .* nvme0n1 .* sda sdb `)
	rack.Expect(m, `HEALTH ata \{"passed":true,"powerOnHours":0,"reallocatedSectors":0\}`)
	rack.Expect(m, `HEALTH nvme \{"passed":true,"powerOnHours":0,"percentUsed":0,"mediaErrors":0\}`)
	rack.Expect(m, `HEALTH virtio null`)
	rack.WaitOff(m)
}

// TestAgentCrash shows that a crash of the agent, in any goroutine, does not crash the machine: the agent is started
// again with the reason, and after the third time the machine reboots.
func TestAgentCrash(t *testing.T) {
	rack := vmtest.NewRack(t, "osinit-crash")
	r := vmtest.NewPlatform(t, t.TempDir(), platform.KernelCloud, "./testdata/agent")
	m := boot(t, rack, r, vm.Config{}, "test.do=panic")
	rack.Expect(m, `AGENT .* restarts=0`)
	rack.Expect(m, `panic: a bug in the agent`)
	for _, n := range []string{"1", "2", "3"} {
		rack.Expect(m, `agent ended with exit status 2; starting it again \(`+n+` of 3\)`)
		rack.Expect(m, `AGENT .* restarts=`+n)
		rack.Expect(m, `LASTOUTPUT "panic: a bug in the agent.*" "exit status 2"`)
	}
	rack.Expect(m, `agent ended with exit status 2, for the 4th time; rebooting`)
	rack.Expect(m, `AGENT .* restarts=0`) // the machine has rebooted
	m.PowerOff()
}

// TestNothingToKexec shows that a kexec without a kernel is a reboot, with a message.
func TestNothingToKexec(t *testing.T) {
	rack := vmtest.NewRack(t, "osinit-kexec")
	r := vmtest.NewPlatform(t, t.TempDir(), platform.KernelCloud, "./testdata/agent")
	m := boot(t, rack, r, vm.Config{}, "test.after=kexec")
	rack.Expect(m, `trivet: kexec: invalid argument`)
	rack.Expect(m, `AGENT `)
}
