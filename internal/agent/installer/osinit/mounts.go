package osinit

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

type mount struct {
	source, target, fstype string
	flags                  uintptr
	data                   string
}

const harmless = unix.MS_NOSUID | unix.MS_NODEV

// mounts are those that every Linux program expects.
var mounts = []mount{
	{"proc", "/proc", "proc", harmless | unix.MS_NOEXEC, ""},
	{"sysfs", "/sys", "sysfs", harmless | unix.MS_NOEXEC, ""},
	{"devtmpfs", "/dev", "devtmpfs", unix.MS_NOSUID, "mode=0755"},
	{"devpts", "/dev/pts", "devpts", unix.MS_NOSUID | unix.MS_NOEXEC, "gid=5,mode=0620,ptmxmode=0666"},
	{"tmpfs", "/dev/shm", "tmpfs", harmless, "mode=1777"},
	{"tmpfs", "/run", "tmpfs", harmless, "mode=0755"},
	{"tmpfs", "/tmp", "tmpfs", harmless, "mode=1777"},
	{"cgroup2", "/sys/fs/cgroup", "cgroup2", harmless | unix.MS_NOEXEC, ""},
}

// makeRoot bind-mounts / over itself. The initramfs is the root of all mounts, which pivot_root(2) refuses and
// containers need. Nothing is copied.
func makeRoot() error {
	for _, step := range []func() error{
		func() error { return unix.Mount("/", "/mnt", "", unix.MS_BIND, "") },
		func() error { return unix.Chdir("/mnt") },
		func() error { return unix.Mount(".", "/", "", unix.MS_MOVE, "") },
		func() error { return unix.Chroot(".") },
		func() error { return unix.Chdir("/") },
	} {
		if err := step(); err != nil {
			return fmt.Errorf("mount the initramfs over itself: %w", err)
		}
	}
	return nil
}

// mountAll mounts the file systems that the kernel supports.
func mountAll() error {
	var errs []error
	for _, m := range mounts {
		err := os.MkdirAll(m.target, 0o755)
		if err == nil {
			err = unix.Mount(m.source, m.target, m.fstype, m.flags, m.data)
		}
		if err != nil && !errors.Is(err, unix.EBUSY) {
			errs = append(errs, fmt.Errorf("mount %s: %w", m.target, err))
		}
	}
	for name, target := range map[string]string{
		"/dev/fd": "/proc/self/fd", "/dev/stdin": "fd/0", "/dev/stdout": "fd/1", "/dev/stderr": "fd/2",
	} {
		_ = os.Symlink(target, name)
	}
	return errors.Join(errs...)
}

// mountEFI mounts the firmware's variables, on a machine that has them, once their file system can be loaded.
func mountEFI() {
	if _, err := os.Stat("/sys/firmware/efi/efivars"); err == nil {
		_ = unix.Mount("efivarfs", "/sys/firmware/efi/efivars", "efivarfs", harmless|unix.MS_NOEXEC, "")
	}
}

// unmountAll unmounts every file system on a device, the last mounted first.
func unmountAll() error {
	info, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	var errs []error
	for _, target := range diskMounts(string(info)) {
		if err := unix.Unmount(target, 0); err != nil {
			err = unix.Mount("", target, "", unix.MS_REMOUNT|unix.MS_RDONLY, "")
			if err != nil {
				errs = append(errs, fmt.Errorf("unmount %s: %w", target, err))
			}
		}
	}
	return errors.Join(errs...)
}

// diskMounts lists the targets in a mountinfo (proc(5)) whose source is a device, the last first.
func diskMounts(info string) []string {
	var targets []string
	for line := range strings.Lines(info) {
		left, right, ok := strings.Cut(line, " - ")
		l, r := strings.Fields(left), strings.Fields(right)
		if ok && len(l) >= 5 && len(r) >= 2 && strings.HasPrefix(r[1], "/dev/") {
			targets = append(targets, octal.Replace(l[4]))
		}
	}
	slices.Reverse(targets)
	return targets
}

// octal decodes the escapes of mountinfo for blanks and backslashes.
var octal = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
