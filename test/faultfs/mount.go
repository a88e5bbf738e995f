package faultfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	fusefs "github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// New mounts a disk for a test, until its end.
func New(t testing.TB) *FS {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("mounting a file system needs root: sudo make test")
	}
	f, err := Mount(t.TempDir(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

func (f *FS) mount() error {
	loopback, err := fusefs.NewLoopbackRoot(filepath.Join(f.backing, filesDir))
	if err != nil {
		return err
	}
	root := &node{LoopbackNode: loopback.(*fusefs.LoopbackNode), fs: f}
	f.root = root.EmbeddedInode()
	// The kernel caches pages, which mmap needs. It stays right, since all changes come through it: but for what a sync
	// did not write, which a disk does not have either.
	f.server, err = fusefs.Mount(f.mountpoint, root, &fusefs.Options{MountOptions: fuse.MountOptions{
		Name: "faultfs", FsName: f.backing, DirectMountStrict: true, MaxWrite: 1 << 20,
		ExplicitDataCacheControl: true,
	}})
	if err != nil {
		return fmt.Errorf("mount FUSE at %s (as root, with /dev/fuse): %w", f.mountpoint, err)
	}
	var st syscall.Stat_t
	if err := syscall.Stat(f.mountpoint, &st); err != nil {
		return err
	}
	f.connection = fmt.Sprint(unix.Minor(st.Dev))
	return nil
}

// unmount ends the disk, also where another mount namespace has a copy of the mount (as ip netns exec makes), and
// calls that wait there. No process of this namespace may use it; one that was killed may need a moment to release
// it.
func (f *FS) unmount() error {
	err := syscall.Unmount(f.mountpoint, 0)
	for wait := 5 * time.Millisecond; errors.Is(err, syscall.EBUSY) && wait < time.Second; wait *= 2 {
		time.Sleep(wait)
		err = syscall.Unmount(f.mountpoint, 0)
	}
	if err != nil {
		return fmt.Errorf("unmount %s: %w", f.mountpoint, err)
	}
	if err := abort(f.connection); err != nil {
		return fmt.Errorf("unmount %s: %w", f.mountpoint, err)
	}
	f.server.Wait()
	return nil
}

// abort ends a FUSE connection by the kernel's file system for that.
func abort(connection string) error {
	dir, err := os.MkdirTemp("", "fusectl-")
	if err != nil {
		return err
	}
	defer os.Remove(dir)
	if err := syscall.Mount("fusectl", dir, "fusectl", 0, ""); err != nil {
		return err
	}
	defer func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) }()
	err = os.WriteFile(filepath.Join(dir, connection, "abort"), []byte("1"), 0)
	if errors.Is(err, fs.ErrNotExist) { // there was no copy
		return nil
	}
	return err
}
