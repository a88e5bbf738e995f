package oci

import (
	"archive/tar"
	"errors"
	"io"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/trivet-project/trivet/internal/agent/container/rootfs"
)

// The names by which a layer removes files of the layers below (OCI image specification, "Whiteouts").
const (
	whiteout = ".wh."
	opaque   = ".wh..wh..opq"
)

// layer unpacks into a tree that contains the layers below.
type layer struct {
	tree  *rootfs.Root
	space *Space
	made  map[string]bool // by this layer: its own whiteouts do not apply to them
}

func (l layer) entry(h *tar.Header, content io.Reader) error {
	name := path.Clean("/" + h.Name)
	dir, err := l.tree.Dir(path.Dir(name), 0o755)
	if err != nil {
		return err
	}
	defer dir.Close()
	base := path.Base(name)
	switch {
	case base == opaque:
		return clearDir(dir, path.Dir(name), l.made)
	case strings.HasPrefix(base, whiteout):
		return remove(dir, strings.TrimPrefix(base, whiteout))
	}
	for above := name; above != "/"; above = path.Dir(above) {
		l.made[above] = true
	}
	return entry{int(dir.Fd()), base, l.tree, l.space, "/"}.unpack(h, content)
}

// plain unpacks an archive's entries below a directory of a tree.
type plain struct {
	tree  *rootfs.Root
	space *Space
	into  string
}

func (p plain) entry(h *tar.Header, content io.Reader) error {
	name := path.Join(p.into, path.Clean("/"+h.Name))
	dir, err := p.tree.Dir(path.Dir(name), 0o755)
	if err != nil {
		return err
	}
	defer dir.Close()
	return entry{int(dir.Fd()), path.Base(name), p.tree, p.space, p.into}.unpack(h, content)
}

// entry is a name in an open directory.
type entry struct {
	dir   int
	name  string
	tree  *rootfs.Root
	space *Space
	top   string // what names in the archive are relative to
}

func (e entry) unpack(h *tar.Header, content io.Reader) error {
	if e.name == "/" { // the tree itself
		return nil
	}
	if err := e.make(h, content); err != nil {
		return err
	}
	return e.finish(h)
}

func (e entry) make(h *tar.Header, content io.Reader) error {
	if h.Typeflag == tar.TypeDir {
		err := unix.Mkdirat(e.dir, e.name, 0o700)
		if errors.Is(err, unix.EEXIST) && e.isDir() {
			return nil
		} else if !errors.Is(err, unix.EEXIST) {
			return err
		}
	}
	if err := removeAt(e.dir, e.name); err != nil {
		return err
	}
	switch h.Typeflag {
	case tar.TypeDir:
		return unix.Mkdirat(e.dir, e.name, 0o700)
	case tar.TypeReg, tar.TypeGNUSparse:
		return e.write(content)
	case tar.TypeSymlink:
		return unix.Symlinkat(h.Linkname, e.dir, e.name)
	case tar.TypeLink:
		return e.link(h.Linkname)
	case tar.TypeChar, tar.TypeBlock, tar.TypeFifo:
		return e.node(h)
	}
	return nil // global headers and the like are not files
}

func (e entry) isDir() bool {
	var st unix.Stat_t
	return unix.Fstatat(e.dir, e.name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR
}

func (e entry) write(content io.Reader) (err error) {
	fd, err := unix.Openat(e.dir, e.name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), e.name)
	defer func() { err = errors.Join(err, f.Close()) }()
	return e.space.copy(f, content)
}

// link creates a hard link to a file of the tree, which is looked up inside it.
func (e entry) link(to string) error {
	to = path.Join(e.top, path.Clean("/"+to))
	dir, err := e.tree.OpenFile(path.Dir(to), unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer dir.Close()
	return unix.Linkat(int(dir.Fd()), path.Base(to), e.dir, e.name, 0)
}

// node creates a device or pipe. Without root there are no devices; a container gets its own /dev anyway.
func (e entry) node(h *tar.Header) error {
	kind := map[byte]uint32{tar.TypeChar: unix.S_IFCHR, tar.TypeBlock: unix.S_IFBLK,
		tar.TypeFifo: unix.S_IFIFO}[h.Typeflag]
	err := unix.Mknodat(e.dir, e.name, kind|0o600, int(unix.Mkdev(uint32(h.Devmajor), uint32(h.Devminor))))
	if errors.Is(err, unix.EPERM) && os.Geteuid() != 0 {
		return nil
	}
	return err
}

// finish sets owner, extended attributes and mode, in this order: chown clears the setuid bit.
func (e entry) finish(h *tar.Header) error {
	isRoot := os.Geteuid() == 0
	if isRoot {
		if err := unix.Fchownat(e.dir, e.name, h.Uid, h.Gid, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return err
		}
	}
	if h.Typeflag == tar.TypeSymlink || h.Typeflag == tar.TypeLink || !isRoot && h.Typeflag != tar.TypeReg &&
		h.Typeflag != tar.TypeDir {
		return nil
	}
	fd, err := unix.Openat(e.dir, e.name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), e.name)
	defer f.Close()
	self := procPath(fd)
	for key, value := range h.PAXRecords {
		attr, ok := strings.CutPrefix(key, "SCHILY.xattr.")
		if !ok || !isRoot {
			continue
		}
		if err := unix.Setxattr(self, attr, []byte(value), 0); err != nil && !errors.Is(err, unix.ENOTSUP) {
			return err
		}
	}
	return unix.Chmod(self, uint32(h.Mode)&0o7777)
}
