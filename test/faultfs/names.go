package faultfs

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// node is a file or directory.
type node struct {
	*fs.LoopbackNode
	fs *FS
}

func (n *node) WrapChild(_ context.Context, child fs.InodeEmbedder) fs.InodeEmbedder {
	return &node{LoopbackNode: child.(*fs.LoopbackNode), fs: n.fs}
}

func (n *node) path() string { return filepath.Join(n.RootData.Path, n.Path(n.Root())) }

// sync makes a file or directory last.
func (n *node) sync() syscall.Errno {
	path := n.path()
	in, err := inodeOf(path)
	if err != nil {
		return fs.ToErrno(err)
	}
	var directories []inode
	for dir := path; len(dir) >= len(n.RootData.Path); dir = filepath.Dir(dir) {
		if directory, err := inodeOf(dir); err == nil {
			directories = append(directories, directory)
		}
	}
	return n.fs.sync(n.EmbeddedInode(), path, in, directories)
}

// Fsync is that of a directory, or of a file without a handle.
func (n *node) Fsync(_ context.Context, _ fs.FileHandle, _ uint32) syscall.Errno {
	return n.sync()
}

func (n *node) Create(
	ctx context.Context, name string, flags, mode uint32, out *fuse.EntryOut,
) (*fs.Inode, fs.FileHandle, uint32, syscall.Errno) {
	n.fs.mu.Lock()
	defer n.fs.mu.Unlock()
	if errno := n.changing(name); errno != 0 {
		return nil, nil, 0, errno
	}
	child, made, _, errno := n.LoopbackNode.Create(ctx, name, flags|syscall.O_EXCL, mode, out)
	if errno != 0 {
		return nil, nil, 0, errno
	}
	_ = made.(fs.FileReleaser).Release(ctx)
	if errno = n.added(name); errno != 0 {
		return nil, nil, 0, errno
	}
	file, err := os.OpenFile(filepath.Join(n.path(), name), int(flags&syscall.O_ACCMODE), 0)
	if err != nil {
		return nil, nil, 0, fs.ToErrno(err)
	}
	of := child.Operations().(*node)
	return child, &handle{LoopbackFile: fs.NewLoopbackFileFromOS(file), node: of, file: file}, fuse.FOPEN_KEEP_CACHE, 0
}

func (n *node) Mkdir(ctx context.Context, name string, mode uint32, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	return n.add(name, func() (*fs.Inode, syscall.Errno) { return n.LoopbackNode.Mkdir(ctx, name, mode, out) })
}

func (n *node) Mknod(
	ctx context.Context, name string, mode, dev uint32, out *fuse.EntryOut,
) (*fs.Inode, syscall.Errno) {
	return n.add(name, func() (*fs.Inode, syscall.Errno) { return n.LoopbackNode.Mknod(ctx, name, mode, dev, out) })
}

func (n *node) Symlink(ctx context.Context, target, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	return n.add(name, func() (*fs.Inode, syscall.Errno) { return n.LoopbackNode.Symlink(ctx, target, name, out) })
}

func (n *node) Link(
	ctx context.Context, target fs.InodeEmbedder, name string, out *fuse.EntryOut,
) (*fs.Inode, syscall.Errno) {
	return n.add(name, func() (*fs.Inode, syscall.Errno) { return n.LoopbackNode.Link(ctx, target, name, out) })
}

// Tmpfile has no name that could be lost; programs do without where there is none.
func (*node) Tmpfile(
	context.Context, uint32, uint32, *fuse.EntryOut,
) (*fs.Inode, fs.FileHandle, uint32, syscall.Errno) {
	return nil, nil, 0, syscall.EOPNOTSUPP
}

func (n *node) add(name string, f func() (*fs.Inode, syscall.Errno)) (*fs.Inode, syscall.Errno) {
	n.fs.mu.Lock()
	defer n.fs.mu.Unlock()
	if errno := n.changing(name); errno != 0 {
		return nil, errno
	}
	child, errno := f()
	if errno == 0 {
		errno = n.added(name)
	}
	return child, errno
}

// changing returns why a name in this directory cannot be changed; the lock is held.
func (n *node) changing(name string) syscall.Errno {
	return n.fs.changing(filepath.Join(n.path(), name))
}

// added notes that a name is new; the lock is held.
func (n *node) added(name string) syscall.Errno {
	dir, err := openDir(n.path())
	if err != nil {
		return fs.ToErrno(err)
	}
	n.fs.renames = append(n.fs.renames, rename{to: place{dir, name}})
	return 0
}

func (n *node) Unlink(_ context.Context, name string) syscall.Errno { return n.remove(name) }
func (n *node) Rmdir(_ context.Context, name string) syscall.Errno  { return n.remove(name) }

// remove moves a file or directory to the trash, until its removal is synced.
func (n *node) remove(name string) syscall.Errno {
	n.fs.mu.Lock()
	defer n.fs.mu.Unlock()
	if errno := n.changing(name); errno != 0 {
		return errno
	}
	dir, err := openDir(n.path())
	if err != nil {
		return fs.ToErrno(err)
	}
	at := place{dir, name}
	trash, err := n.fs.discard(at)
	if err != nil {
		_ = dir.close()
		return fs.ToErrno(err)
	}
	n.fs.renames = append(n.fs.renames, rename{to: at, trash: trash})
	return 0
}

func (n *node) Rename(
	_ context.Context, name string, parent fs.InodeEmbedder, newName string, flags uint32,
) syscall.Errno {
	if flags&^unix.RENAME_NOREPLACE != 0 {
		return syscall.EINVAL
	}
	n.fs.mu.Lock()
	defer n.fs.mu.Unlock()
	to := parent.(*node)
	if errno := cmp.Or(n.changing(name), to.changing(newName)); errno != 0 {
		return errno
	}
	return fs.ToErrno(n.rename(name, to, newName, flags))
}

func (n *node) rename(name string, parent *node, newName string, flags uint32) error {
	from, err := openDir(n.path())
	if err != nil {
		return err
	}
	to, err := openDir(parent.path())
	if err != nil {
		_ = from.close()
		return err
	}
	r := rename{from: place{from, name}, to: place{to, newName}}
	if err := n.fs.rename(&r, flags); err != nil {
		r.close()
		return err
	}
	n.fs.renames = append(n.fs.renames, r)
	return nil
}

// rename does r, and keeps what it replaces.
func (f *FS) rename(r *rename, flags uint32) (err error) {
	if err := unix.Faccessat(r.to.dir.fd, r.to.name, unix.F_OK, unix.AT_SYMLINK_NOFOLLOW); err == nil {
		if flags&unix.RENAME_NOREPLACE != 0 {
			return syscall.EEXIST
		}
		if r.trash, err = f.discard(r.to); err != nil {
			return err
		}
	}
	if err := unix.Renameat(r.from.dir.fd, r.from.name, r.to.dir.fd, r.to.name); err != nil {
		if r.trash != "" {
			return fmt.Errorf("%w; %v", err, unix.Renameat(unix.AT_FDCWD, r.trash, r.to.dir.fd, r.to.name))
		}
		return err
	}
	return nil
}

// discard moves what is at a place into the trash, and returns its path there. A directory must be empty.
func (f *FS) discard(at place) (string, error) {
	if list, err := os.ReadDir(at.path()); err == nil && len(list) > 0 {
		return "", syscall.ENOTEMPTY
	}
	f.removed++
	trash := filepath.Join(f.backing, trashDir, fmt.Sprint(f.removed))
	return trash, unix.Renameat(at.dir.fd, at.name, unix.AT_FDCWD, trash)
}

// dirHandle is an open directory.
type dirHandle struct {
	stream
	node *node
}

// stream is what the loopback's open directory can do.
type stream interface {
	fs.FileReaddirenter
	fs.FileSeekdirer
	fs.FileReleasedirer
}

func (n *node) OpendirHandle(ctx context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	h, flags, errno := n.LoopbackNode.OpendirHandle(ctx, flags)
	if errno != 0 {
		return nil, 0, errno
	}
	return &dirHandle{stream: h.(stream), node: n}, flags, 0
}

func (d *dirHandle) Fsyncdir(_ context.Context, _ uint32) syscall.Errno { return d.node.sync() }
