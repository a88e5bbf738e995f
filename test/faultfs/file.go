package faultfs

import (
	"context"
	"os"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// handle is an open file. Reads that the kernel does not answer by its cache go to the backing file.
type handle struct {
	*fs.LoopbackFile
	node *node
	file *os.File
}

// PassthroughFd keeps the kernel from writing to the backing file without us.
func (*handle) PassthroughFd() (int, bool) { return 0, false }

func (h *handle) Read(ctx context.Context, dest []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	if errno := h.node.fs.before(h.node.path(), onRead(off, int64(len(dest)))); errno != 0 {
		return nil, errno
	}
	return h.LoopbackFile.Read(ctx, dest, off)
}

func (h *handle) Write(_ context.Context, data []byte, off int64) (uint32, syscall.Errno) {
	f := h.node.fs
	if errno := f.before(h.node.path(), onWrite); errno != 0 {
		return 0, errno
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.remember(h.file, off, int64(len(data))); err != nil {
		return 0, fs.ToErrno(err)
	}
	n, err := h.file.WriteAt(data, off)
	return uint32(n), fs.ToErrno(err)
}

func (h *handle) Allocate(ctx context.Context, off, size uint64, mode uint32) syscall.Errno {
	if mode&^unix.FALLOC_FL_KEEP_SIZE != 0 {
		return syscall.EOPNOTSUPP
	}
	f := h.node.fs
	if errno := f.before(h.node.path(), onWrite); errno != 0 {
		return errno
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.remember(h.file, 0, 0); err != nil {
		return fs.ToErrno(err)
	}
	return h.LoopbackFile.Allocate(ctx, off, size, mode)
}

func (h *handle) Setattr(ctx context.Context, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	f := h.node.fs
	f.mu.Lock()
	defer f.mu.Unlock()
	if errno := f.changing(h.node.path()); errno != 0 {
		return errno
	}
	if size, ok := in.GetSize(); ok {
		if err := f.rememberTail(h.file, int64(size)); err != nil {
			return fs.ToErrno(err)
		}
	}
	return h.LoopbackFile.Setattr(ctx, in, out)
}

func (h *handle) Fsync(context.Context, uint32) syscall.Errno { return h.node.sync() }

// Flush is a close, which makes nothing last.
func (*handle) Flush(context.Context) syscall.Errno { return 0 }

func (n *node) Open(_ context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	n.fs.mu.Lock()
	defer n.fs.mu.Unlock()
	truncate := flags&syscall.O_TRUNC != 0
	if truncate || flags&syscall.O_ACCMODE != syscall.O_RDONLY {
		if errno := n.fs.changing(n.path()); errno != 0 {
			return nil, 0, errno
		}
	}
	if truncate {
		if err := n.fs.rememberPath(n.path(), 0); err != nil {
			return nil, 0, fs.ToErrno(err)
		}
	}
	return n.open(flags, 0)
}

func (n *node) open(flags, mode uint32) (fs.FileHandle, uint32, syscall.Errno) {
	flags &^= syscall.O_APPEND | syscall.O_SYNC | syscall.O_DIRECT | fuse.FMODE_EXEC // the kernel sees to them
	file, err := os.OpenFile(n.path(), int(flags), os.FileMode(mode))
	if err != nil {
		return nil, 0, fs.ToErrno(err)
	}
	return &handle{LoopbackFile: fs.NewLoopbackFileFromOS(file), node: n, file: file}, fuse.FOPEN_KEEP_CACHE, 0
}

// Setattr of a file that is not open.
func (n *node) Setattr(ctx context.Context, h fs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	if h, ok := h.(*handle); ok {
		return h.Setattr(ctx, in, out)
	}
	n.fs.mu.Lock()
	defer n.fs.mu.Unlock()
	if errno := n.fs.changing(n.path()); errno != 0 {
		return errno
	}
	if size, ok := in.GetSize(); ok {
		if err := n.fs.rememberPath(n.path(), int64(size)); err != nil {
			return fs.ToErrno(err)
		}
	}
	return n.LoopbackNode.Setattr(ctx, nil, in, out)
}

// CopyFileRange leaves copying to reads and writes.
func (*node) CopyFileRange(
	context.Context, fs.FileHandle, uint64, *fs.Inode, fs.FileHandle, uint64, uint64, uint64,
) (uint32, syscall.Errno) {
	return 0, syscall.EOPNOTSUPP
}
