package action

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/trivet-project/trivet/internal/agent/action/block"
)

// twoMirrors has, on the disks vda and nvme0n1, a mirror of their second partitions with two volumes of LVM, and one of
// their third; vda4 is a partition of its own.
func twoMirrors(t *testing.T) stack {
	t.Helper()
	root := t.TempDir()
	make := func(path string) {
		must(t, os.MkdirAll(filepath.Join(root, path), 0o755))
	}
	make(classBlock)
	for _, disk := range []string{"vda", "nvme0n1"} {
		make("sys/devices/" + disk + "/slaves")
		must(t, os.Symlink("../../devices/"+disk, filepath.Join(root, classBlock, disk)))
		for _, n := range []string{"2", "3", "4"} {
			part := disk + strings.TrimPrefix("p"+n, map[bool]string{true: "p"}[disk == "vda"])
			make("sys/devices/" + disk + "/" + part + "/holders")
			must(t, os.WriteFile(filepath.Join(root, "sys/devices", disk, part, "partition"), []byte(n), 0o644))
			must(t, os.Symlink("../../devices/"+disk+"/"+part, filepath.Join(root, classBlock, part)))
		}
	}
	for _, on := range [][2]string{{"md126", "vda2"}, {"md126", "nvme0n1p2"}, {"md127", "vda3"}, {"md127", "nvme0n1p3"},
		{"dm-0", "md126"}, {"dm-1", "md126"}} {
		make(classBlock + on[0] + "/slaves/" + on[1])
		make(classBlock + on[0] + "/holders")
		make(classBlock + on[1] + "/holders/" + on[0])
	}
	return stack{os.DirFS(root)}
}

func TestStackOfDevices(t *testing.T) {
	s := twoMirrors(t)
	for name, want := range map[string]string{"dm-0": "nvme0n1 vda", "md127": "nvme0n1 vda", "vda3": "vda", "vda": "vda",
		"none": "none"} {
		got := s.disks(name)
		slices.Sort(got)
		if strings.Join(got, " ") != want {
			t.Errorf("disks of %s: %q, want %q", name, got, want)
		}
	}
	if got := s.parts("vda"); !slices.Equal(got, []string{"vda2", "vda3", "vda4"}) {
		t.Errorf("partitions %q", got)
	}
	if got := s.above("vda"); !slices.Equal(got, []string{"md126", "dm-0", "dm-1", "md127"}) {
		t.Errorf("above vda: %q", got)
	}
	if got := s.above("md127"); got != nil {
		t.Errorf("above md127: %q", got)
	}
	if got := (stack{}).above("vda"); got != nil {
		t.Errorf("without sysfs: %q", got)
	}
}

// withSys makes a machine have another sysfs.
func withSys(t *testing.T, sys fs.FS) {
	before := sysRoot
	t.Cleanup(func() { sysRoot = before })
	sysRoot = sys
}

// A device that others are made of is none that could hold the root.
func TestVolumesThatOthersAreMadeOfAreLeftOut(t *testing.T) {
	b := onLoop(t, 64<<20)
	b.do("format", map[string]any{"fs": "ext4"})
	m := &mirror{bench: b, sys: t.TempDir()}
	m.device(b.disk, "vda")
	withSys(t, os.DirFS(m.sys))
	if list, err := volumesOf(b.disk); err != nil || len(list) != 1 || list[0].fs.Type != "ext4" {
		t.Errorf("%+v, %v", list, err)
	}
	m.addDevice("md127", "md/array_state", "clean", "vda")
	if list, err := volumesOf(b.disk); err != nil || len(list) != 0 {
		t.Errorf("of an array: %+v, %v", list, err)
	}
}

func TestABootLoaderIsOnEachDiskOfAMirror(t *testing.T) {
	esp := func(disk string, n int) volume {
		return volume{disk: disk, number: n, isESP: true, fs: block.FS{Type: "vfat"}}
	}
	root := &Root{Dir: "/r", Disk: "/dev/vg0/root", Disks: []string{"/dev/sda", "/dev/sdb"}, mounted: map[string]volume{},
		volumes: []volume{{disk: "/dev/vg0/root"}, esp("/dev/sda", 1), esp("/dev/sda", 9), {disk: "/dev/sdb", number: 2},
			esp("/dev/sdb", 1)}}
	if got := root.esps(); len(got) != 2 || got[0].disk != "/dev/sda" || got[0].number != 1 || got[1].disk != "/dev/sdb" {
		t.Errorf("EFI system partitions %+v", got)
	}
	root.mounted[espDir] = root.volumes[4] // by its fstab
	others, err := root.mountESP(t.Context())
	if err != nil || len(others) != 1 || others[0].disk != "/dev/sda" {
		t.Errorf("others than /dev/sdb's: %+v, %v", others, err)
	}
	root.mounted[espDir] = volume{disk: "/dev/md127"} // a mirror of both
	if others, err = root.mountESP(t.Context()); err != nil || len(others) != 0 {
		t.Errorf("others than the mirror's: %+v, %v", others, err)
	}

	b := onFile(t, 1<<20)
	at := &Attempt{Run: b.run}
	box, err := grub(at, "uefi", root, []volume{{disk: "/dev/sdb", isESP: true}})
	must(t, err)
	for _, want := range []string{"DISK=/dev/sda /dev/sdb", "ESP=/boot/efi /run/trivet-efi-2", "FIRMWARE=uefi"} {
		if !slices.Contains(box.Env, want) {
			t.Errorf("no %q in %q", want, box.Env)
		}
	}
	last := box.Mounts[len(box.Mounts)-1]
	if last.Source != "/dev/sdb" || last.Target != "/run/trivet-efi-2" || last.Type != "vfat" {
		t.Errorf("mount %+v", last)
	}
}

// The script is the installed system's, whose programs are these here.
func TestTheScriptInstallsGRUBOnEachDisk(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"grub-install", "grub-mkconfig"} {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\necho "+name+" \"$@\"\n"), 0o755))
	}
	for firmware, want := range map[string]string{
		"bios": "grub-install --target=i386-pc /dev/sda\ngrub-install --target=i386-pc /dev/sdb\n",
		"uefi": "grub-install --target=x86_64-efi --efi-directory=/boot/efi --removable --no-nvram\n" +
			"grub-install --target=x86_64-efi --efi-directory=/run/trivet-efi-2 --removable --no-nvram\n",
	} {
		cmd := exec.CommandContext(t.Context(), "/bin/sh", "-ec", grubScript)
		cmd.Env = []string{"PATH=" + dir + ":/bin:/usr/bin", "FIRMWARE=" + firmware, "DISK=/dev/sda /dev/sdb",
			"ESP=/boot/efi /run/trivet-efi-2", "TARGET=x86_64-efi"}
		out, err := cmd.CombinedOutput()
		if got, _, _ := strings.Cut(string(out), "grub-mkconfig -o /boot/grub"); err != nil || got != want ||
			strings.Count(string(out), "grub-mkconfig") != 1 {
			t.Errorf("%s: %v\n%s\nwant\n%s", firmware, err, out, want)
		}
	}
}
