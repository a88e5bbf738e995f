package action

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/actionspec"
	"github.com/trivet-project/trivet/internal/agent/action/block"
	"github.com/trivet-project/trivet/internal/agent/container/rootfs"
	"github.com/trivet-project/trivet/internal/agent/inventory"
)

// Machine is a real machine's disks and mounts. It requires root.
type Machine struct {
	// Dir is where file systems are mounted; nothing else may use it.
	Dir string
	// Avoid are disks, or partitions of them, that only hints which identify a disk choose, such as the journal's.
	Avoid []string
}

var sysRoot = os.DirFS("/")

// Disk returns the node of a disk. Paths of block devices that are not in the inventory ("/dev/md0") are accepted.
func (m *Machine) Disk(h trivet.DiskHints) (string, error) {
	d, err := actionspec.ChooseDisk(inventory.Disks(sysRoot), h, m.avoided()...)
	if err == nil {
		return d.Name, nil
	}
	if h == (trivet.DiskHints{Path: h.Path}) && isOtherNode(h.Path) {
		return h.Path, nil
	}
	return "", err
}

// isOtherNode reports whether a path is a block device that the inventory does not list, such as a RAID.
func isOtherNode(path string) bool {
	fi, err := os.Stat(path)
	isBlock := err == nil && fi.Mode()&fs.ModeDevice != 0 && fi.Mode()&fs.ModeCharDevice == 0
	return isBlock && strings.HasPrefix(path, "/dev/")
}

// Disks returns all disks that are neither read-only, removable nor avoided.
func (m *Machine) Disks() ([]string, error) {
	var out []string
	avoided := m.avoided()
	for _, d := range inventory.Disks(sysRoot) {
		if !d.ReadOnly && !d.Removable && !slices.Contains(avoided, d.Name) {
			out = append(out, d.Name)
		}
	}
	return out, nil
}

// Keeps reports whether a disk is one to avoid.
func (m *Machine) Keeps(path string) bool {
	real, err := filepath.EvalSymlinks(path)
	return err == nil && slices.Contains(m.avoided(), real)
}

// avoided returns the disks to avoid: those of partitions, too, and of links.
func (m *Machine) avoided() []string {
	var out []string
	for _, path := range m.Avoid {
		if real, err := filepath.EvalSymlinks(path); err == nil {
			path = real
		}
		out = append(out, path, diskOf(sysRoot, path))
	}
	return out
}

// diskOf returns the disk of a partition, and another path as it is.
func diskOf(root fs.FS, path string) string {
	dir := "sys/class/block/" + filepath.Base(path)
	link, err := fs.ReadLink(root, dir)
	if _, errPartition := fs.Stat(root, dir+"/partition"); err != nil || errPartition != nil {
		return path
	}
	return "/dev/" + filepath.Base(filepath.Dir(link)) // the directory of a partition is in that of its disk
}

// Root mounts the root file system and what its fstab mounts below it.
func (m *Machine) Root(ctx context.Context, disk string, partition int) (*Root, error) {
	if err := m.sweep(); err != nil {
		return nil, err
	}
	own, err := volumesOf(disk)
	if err != nil {
		return nil, err
	}
	v, err := m.choose(disk, own, partition)
	if err != nil {
		return nil, err
	}
	disks, others, err := stack{sysRoot}.around(disk)
	if err != nil {
		return nil, err
	}
	root := &Root{Dir: filepath.Join(m.Dir, "root"), Disk: disk, Disks: disks, UUID: v.fs.UUID,
		volumes: append(own, others...), mounted: map[string]volume{}}
	if err := os.MkdirAll(root.Dir, 0o700); err != nil {
		return nil, err
	}
	if root.undo, err = mount(ctx, v, root.Dir, 0); err != nil {
		return nil, err
	}
	if err := m.mountFstab(ctx, root); err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return root, nil
}

// choose returns the volume of a partition or, without a number, the only one that can be the root.
func (m *Machine) choose(disk string, volumes []volume, partition int) (volume, error) {
	if partition != 0 {
		i := slices.IndexFunc(volumes, func(v volume) bool { return v.number == partition })
		if i < 0 && len(stack{sysRoot}.above(stack{sysRoot}.nameOf(disk))) > 0 {
			return volume{}, fmt.Errorf("%s has %w: %d, or it is a part of an array or a volume group: name that, as "+
				"/dev/md/NAME or /dev/GROUP/VOLUME", disk, block.ErrNoPartition, partition)
		}
		if i < 0 {
			return volume{}, fmt.Errorf("%s has %w: %d", disk, block.ErrNoPartition, partition)
		}
		if volumes[i].fs.Type == "" {
			return volume{}, finalf(trivet.FaultConfiguration, "partition %d of %s has no supported file system",
				partition, disk)
		}
		return volumes[i], nil
	}
	candidates := slices.DeleteFunc(slices.Clone(volumes), func(v volume) bool { return !v.fs.IsRoot() })
	if len(candidates) == 1 {
		return candidates[0], nil
	}
	for _, v := range candidates {
		if is, err := m.holdsSystem(v); err != nil || is {
			return v, err
		}
	}
	return volume{}, finalf(trivet.FaultConfiguration,
		"%s has %d file systems that could be a root file system, and none contains a system; set partition", disk,
		len(candidates))
}

// holdsSystem reports whether an operating system is installed on a volume.
func (m *Machine) holdsSystem(v volume) (is bool, err error) {
	dir := filepath.Join(m.Dir, "probe")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return false, err
	}
	undo, err := mount(context.Background(), v, dir, unix.MS_RDONLY)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, undo()) }()
	tree, err := rootfs.Open(dir)
	if err != nil {
		return false, err
	}
	defer tree.Close()
	_, errRelease := tree.ReadFile("/etc/os-release", maxFstab)
	_, errFstab := tree.ReadFile("/etc/fstab", maxFstab)
	return errRelease == nil || errFstab == nil, nil
}

// mountFstab mounts the entries of the installed system's fstab that are on the root's disks. Missing ones are skipped.
func (m *Machine) mountFstab(ctx context.Context, root *Root) error {
	tree, err := rootfs.Open(root.Dir)
	if err != nil {
		return err
	}
	defer tree.Close()
	b, err := tree.ReadFile("/etc/fstab", maxFstab)
	if err != nil {
		return nil // nothing is installed yet, or there is nothing else to mount
	}
	for _, entry := range parseFstab(b) {
		i := slices.IndexFunc(root.volumes, func(v volume) bool { return v.is(entry.source) })
		if i < 0 || root.volumes[i].fs.Type == "" || root.volumes[i].fs.Type == "swap" {
			continue
		}
		if err := root.mountAt(ctx, tree, root.volumes[i], entry.dir); err != nil {
			return err
		}
	}
	return nil
}

// mountAt mounts a volume in the root, at a directory that is looked up as the root's own system would.
func (r *Root) mountAt(ctx context.Context, tree *rootfs.Root, v volume, name string) error {
	dir, err := tree.Dir(name, 0o755)
	if err != nil {
		return fmt.Errorf("mount %s of the installed system: %w", name, err)
	}
	defer dir.Close()
	where, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(int(dir.Fd())))
	if err != nil {
		return err
	}
	undo, err := mount(ctx, v, where, 0)
	if err != nil {
		return fmt.Errorf("mount %s of the installed system: %w", name, err)
	}
	r.mounted[name] = v
	before := r.undo
	r.undo = func() error { return errors.Join(undo(), before()) }
	return nil
}

// espDir is where boot loaders look for the EFI system partition.
const espDir = "/boot/efi"

// mountESP mounts the first EFI system partition at espDir, unless the system's own fstab has mounted one. It returns
// those of the root's other disks.
func (r *Root) mountESP(ctx context.Context) (others []volume, err error) {
	esps := r.esps()
	if v, ok := r.mounted[espDir]; ok {
		return slices.DeleteFunc(esps, func(esp volume) bool { return esp.disk == v.disk || !v.isESP }), nil
	}
	if len(esps) == 0 {
		return nil, finalf(trivet.FaultConfiguration, "%s has no EFI system partition", strings.Join(r.Disks, ", "))
	}
	tree, err := rootfs.Open(r.Dir)
	if err != nil {
		return nil, err
	}
	defer tree.Close()
	return esps[1:], r.mountAt(ctx, tree, esps[0], espDir)
}

// esps returns the first EFI system partition of each disk.
func (r *Root) esps() (out []volume) {
	for _, v := range r.volumes {
		if v.isESP && !slices.ContainsFunc(out, func(esp volume) bool { return esp.disk == v.disk }) {
			out = append(out, v)
		}
	}
	return out
}

// mount mounts a volume and returns a function that unmounts it.
func mount(ctx context.Context, v volume, dir string, flags uintptr) (undo func() error, err error) {
	node, release, err := block.Attach(v.disk, v.number)
	if err != nil {
		return nil, err
	}
	if err := unix.Mount(node, dir, v.fs.Type, flags, ""); err != nil {
		return nil, errors.Join(fmt.Errorf("mount %s (%s): %w", node, v.fs.Type, err), release())
	}
	return func() error { return errors.Join(unmount(ctx, dir), release()) }, nil
}

// unmount flushes the file system, whose write errors appear only here, and unmounts it. If a process still uses it
// after a moment, it is detached.
func unmount(ctx context.Context, dir string) error {
	f, err := os.Open(dir)
	if err == nil {
		err = errors.Join(unix.Syncfs(int(f.Fd())), f.Close())
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	for {
		errUnmount := unix.Unmount(dir, 0)
		if !errors.Is(errUnmount, unix.EBUSY) {
			return errors.Join(err, errUnmount)
		}
		select { // there is no event to wait for
		case <-ctx.Done():
			return errors.Join(err, fmt.Errorf("unmount %s: %w", dir, errUnmount), unix.Unmount(dir, unix.MNT_DETACH))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// sweep unmounts what a killed agent left mounted.
func (m *Machine) sweep() error {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	var left []string
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 4 && strings.HasPrefix(f[4], m.Dir+"/") {
			left = append(left, unescape(f[4]))
		}
	}
	for _, dir := range slices.Backward(left) {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			return fmt.Errorf("unmount %s, left by an earlier agent: %w", dir, err)
		}
	}
	return nil
}

// KexecLoad loads a kernel by kexec_file_load(2). It has no effect until [EndKexec] starts it.
func KexecLoad(kernel, initrd *os.File, cmdline string) error {
	flags, fd := unix.KEXEC_FILE_NO_INITRAMFS, 0
	if initrd != nil {
		flags, fd = 0, int(initrd.Fd())
	}
	if err := unix.KexecFileLoad(int(kernel.Fd()), fd, cmdline, flags); err != nil {
		return fmt.Errorf("kexec_file_load: %w", err)
	}
	return nil
}
