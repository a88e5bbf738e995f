package e2e_test

import (
	"bytes"
	"net"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/trivet-project/trivet/internal/lab/vm"
)

// storageYAML mirrors two disks, has volumes on the mirror, and a file on one of these; then it wipes all as a release
// does. The waits are where the test interferes.
const storageYAML = `
kind: Template
name: storage
spec:
  actions:
  - name: partition-a
    use: partition
    with: {disk: {serial: DISK-A}, partitions: &layout [{size: 64MiB, type: efi}, {size: rest, type: raid}]}
  - {name: partition-b, use: partition, with: {disk: {serial: DISK-B}, partitions: *layout}}
  - {name: first-wait, use: noop, with: {sleep: 10s}}
  - name: raid
    use: raid
    with:
      name: system
      level: 1
      devices: [{disk: {serial: DISK-A}, partition: 2}, {disk: {serial: DISK-B}, partition: 2}]
  - name: lvm
    use: lvm
    with:
      group: vg0
      devices: [/dev/md/system]
      volumes: [{name: data, size: rest}, {name: root, size: 100MiB}]
  - {name: format, use: format, with: {disk: /dev/vg0/root, fs: ext4, label: root}}
  - {name: file, use: file, with: {disk: /dev/vg0/root, path: /etc/os-release, content: "ID=mirrored"}}
  - {name: second-wait, use: noop, with: {sleep: 10s}}
  - {name: array, use: command, with: {in: installer, args: [mdadm, --detail, /dev/md/system]}}
  - {name: volumes, use: command, with: {in: installer, args: [lvm, lvs, --options, "vg_name,lv_name,lv_size"]}}
  - {name: check, use: command, with: {in: installer, args: [e2fsck, -f, -n, /dev/vg0/root]}}
  - {name: wipe, use: wipe, with: {disk: all, mode: erase}}
  - {name: verify, use: verify, with: {disk: all}}
  - {name: poweroff, use: poweroff}
`

// A mirror of two disks with volumes of LVM on it is created once: a machine that loses its power, before the heads
// have its reports, finds its own array and volumes. After the next loss the actions that follow have them again. A
// wipe stops them, and leaves nothing.
func TestRAIDAndLVM(t *testing.T) {
	t.Parallel()
	s := newBareSite(t, "e2e-storage", headAddress, "--dhcp", "lab0")
	s.apply(networkYAML)
	s.apply(storageYAML)
	b, disks := s.mirrored("raid1", "52:54:00:77:00:41")
	s.trivet("provision", "raid1", "--template", "storage", "--machine", "raid1", "--no-wait")
	b.powerOn()
	s.waitForStep("raid1-1", "first-wait", "running")
	s.head.kill()
	b.mustPrint(`EXT4-fs \(dm-\d+\): unmounting`) // the action file has ended
	b.PowerOff()
	s.head.mustStart()
	b.powerOn()
	s.waitForStep("raid1-1", "second-wait", "running")
	b.PowerOff()
	for _, d := range disks {
		if content, err := os.ReadFile(d.Path); err != nil || !bytes.Contains(content, []byte("ID=mirrored")) {
			t.Errorf("%s does not have the file (%v)", d.Path, err)
		}
	}
	b.powerOn()
	s.waitForStep("raid1-1", "poweroff", "done")
	log := s.trivet("logs", "raid1-1")
	t.Log(log)
	for _, want := range []string{
		"/dev/md/system exists already\n", "/dev/vg0/root exists already\n", "/dev/vg0/data exists already\n",
		"Raid Level : raid1\n", "Active Devices : 2\n", "  vg0 root 100.00m\n", "root: 13/25584 files",
		"+ dmsetup remove --noudevsync --noudevrules --retry vg0-root\n", "+ mdadm --stop /dev/md127\n",
		"/dev/vda: erased by ", "/dev/nvme0n1: erased by ",
	} {
		if !strings.Contains(log, want) {
			t.Errorf("the log has no %q", want)
		}
	}
	if n := strings.Count(log, "mdadm --create"); n > 1 {
		t.Errorf("the array was created %d times", n)
	}
	for _, d := range disks {
		mustBeZero(t, d.Path)
	}
}

// mirrored plugs in a machine with two disks, and none for the agent's journal.
func (s *site) mirrored(name, address string) (*box, []vm.Disk) {
	s.Helper()
	disks := []vm.Disk{{Path: s.path("a.disk"), SizeMB: 384, Serial: "DISK-A"},
		{Path: s.path("b.disk"), SizeMB: 384, Bus: "nvme", Serial: "DISK-B"}}
	mac, err := net.ParseMAC(address)
	if err != nil {
		s.Fatal(err)
	}
	m, err := vm.NewMachine(s.Context(), s.net, vm.Config{Name: name, MAC: mac, Firmware: vm.UEFIPXE,
		Dir: s.path(name), MemoryMB: 1024, Disks: disks})
	if err != nil {
		s.Fatal(err)
	}
	b := &box{Machine: m, s: s, name: name}
	s.Cleanup(func() { _ = m.Close() })
	s.Cleanup(b.printLog)
	s.apply("kind: Machine\nname: " + name + "\nspec: {arch: amd64, nics: [{mac: \"" + address + "\"}]}\n")
	return b, disks
}

// waitForStep waits until an action of a run has a state. A failed one ends the test.
func (s *site) waitForStep(run, step, state string) {
	s.Helper()
	is := regexp.MustCompile(`"name": *"` + step + `",\s*"state": *"` + state + `"`)
	s.waitFor(step+" is "+state, 8*time.Minute, func() bool {
		out, err := s.output("get", "workflows", run, "-o", "json")
		if strings.Contains(out, `"state": "failed"`) {
			s.Fatal(out)
		}
		return err == nil && is.MatchString(out)
	})
}
