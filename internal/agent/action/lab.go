package action

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/actionspec"
)

// Files is a simulated machine's disks: ordinary files, without root. What a real machine would mount is a directory
// beside the disk's file, one for each disk.
type Files struct {
	Paths map[string]string // file by the disk's name, "/dev/vda"
}

// Disk returns the file of a disk.
func (f Files) Disk(h trivet.DiskHints) (string, error) {
	var disks []trivet.Disk
	for _, name := range slices.Sorted(maps.Keys(f.Paths)) {
		disks = append(disks, trivet.Disk{Name: name, Bytes: bytesOf(f.Paths[name])})
	}
	d, err := actionspec.ChooseDisk(disks, h)
	return f.Paths[d.Name], err
}

func bytesOf(path string) int64 {
	if fi, err := os.Stat(path); err == nil {
		return fi.Size()
	}
	return 0
}

// Disks returns all files.
func (f Files) Disks() ([]string, error) { return slices.Sorted(maps.Values(f.Paths)), nil }

// Keeps reports whether the journal is on a disk: the lab's are beside them.
func (f Files) Keeps(string) bool { return false }

// RootOf returns the directory that represents the system installed on a disk.
func (f Files) RootOf(path string) string { return path + ".root" }

// Root returns that directory and creates it if it does not exist.
func (f Files) Root(_ context.Context, disk string, _ int) (*Root, error) {
	dir, err := filepath.Abs(f.RootOf(disk))
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	return &Root{Dir: dir, Disk: disk, Disks: []string{disk}}, err
}

// own returns an owner for chown; without root the owner cannot be changed.
func own(id int) int {
	if os.Geteuid() != 0 {
		return -1
	}
	return id
}
