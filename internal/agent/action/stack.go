package action

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// stack is what the kernel builds its block devices from, by their names ("vda2", "md127", "dm-0"), as sysfs has it: of
// a disk partitions, of these arrays and volumes. Without files it is empty.
type stack struct{ sys fs.FS }

const classBlock = "sys/class/block/"

// nameOf returns the kernel's name of a device's node; empty where it is none. A node may have any path.
func (s stack) nameOf(node string) string {
	var st unix.Stat_t
	if s.sys == nil || unix.Stat(node, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFBLK {
		return ""
	}
	link, err := fs.ReadLink(s.sys, fmt.Sprintf("sys/dev/block/%d:%d", unix.Major(st.Rdev), unix.Minor(st.Rdev)))
	if err != nil {
		return ""
	}
	return path.Base(link)
}

// holders returns the devices that are made of a device, but not its partitions.
func (s stack) holders(name string) []string { return s.entries(classBlock + name + "/holders") }

// parts returns the partitions of a device.
func (s stack) parts(name string) []string {
	return slices.DeleteFunc(s.entries(classBlock+name), func(entry string) bool {
		return !strings.HasPrefix(entry, name) || !s.has(entry, "partition")
	})
}

func (s stack) entries(dir string) (out []string) {
	if s.sys == nil {
		return nil
	}
	list, _ := fs.ReadDir(s.sys, dir)
	for _, e := range list {
		out = append(out, e.Name())
	}
	return out
}

func (s stack) has(name, file string) bool {
	_, err := fs.Stat(s.sys, classBlock+name+"/"+file)
	return err == nil
}

func (s stack) text(name, file string) string {
	b, _ := fs.ReadFile(s.sys, classBlock+name+"/"+file)
	return strings.TrimSpace(string(b))
}

// disks returns the disks that a device is made of; a disk is made of itself.
func (s stack) disks(name string) (out []string) {
	below := s.entries(classBlock + name + "/slaves")
	if disk := strings.TrimPrefix(diskOf(s.sys, "/dev/"+name), "/dev/"); disk != name {
		below = []string{disk}
	}
	if len(below) == 0 {
		return []string{name}
	}
	for _, b := range below {
		for _, disk := range s.disks(b) {
			if !slices.Contains(out, disk) {
				out = append(out, disk)
			}
		}
	}
	return out
}

// above returns what is made of a device and of its partitions.
func (s stack) above(name string) (out []string) {
	for _, d := range append(s.parts(name), name) {
		for _, h := range s.holders(d) {
			for _, a := range append([]string{h}, s.above(h)...) {
				if !slices.Contains(out, a) {
					out = append(out, a)
				}
			}
		}
	}
	return out
}

// nodeOf returns the node of a device that the kernel has made itself.
func nodeOf(name string) string { return "/dev/" + name }

// sameDevice reports whether two paths are nodes of one block device.
func sameDevice(a, b string) bool {
	var x, y unix.Stat_t
	isBlock := func(st *unix.Stat_t, path string) bool {
		return unix.Stat(path, st) == nil && st.Mode&unix.S_IFMT == unix.S_IFBLK
	}
	return isBlock(&x, a) && isBlock(&y, b) && x.Rdev == y.Rdev
}
