// Package rootfs writes files into a directory tree that another system calls its root. Names are resolved as that
// system would: an absolute link starts at its root and ".." does not leave it, so that no link in a foreign tree
// reaches the files of this one. It rests on openat2(2) with RESOLVE_IN_ROOT and needs no privilege.
package rootfs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Root is an open tree.
type Root struct{ dir *os.File }

// Open opens the tree at a directory of this system.
func Open(dir string) (*Root, error) {
	f, err := os.OpenFile(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return &Root{f}, nil
}

// Close closes the tree.
func (r *Root) Close() error { return r.dir.Close() }

// OpenFile is os.OpenFile inside the tree; it does not create directories.
func (r *Root) OpenFile(name string, flags int, mode fs.FileMode) (*os.File, error) {
	how := unix.OpenHow{Flags: uint64(flags | unix.O_CLOEXEC),
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS}
	if flags&(os.O_CREATE|unix.O_TMPFILE) != 0 {
		how.Mode = uint64(mode.Perm())
	}
	for {
		fd, err := unix.Openat2(int(r.dir.Fd()), "./"+name, &how)
		switch {
		case err == nil:
			return os.NewFile(uintptr(fd), name), nil
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN): // EAGAIN: the tree was renamed under the lookup
		default:
			return nil, &fs.PathError{Op: "open", Path: name, Err: err}
		}
	}
}

// ReadFile returns a file's content, of at most limit bytes.
func (r *Root) ReadFile(name string, limit int64) ([]byte, error) {
	f, err := r.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(b)) > limit {
		err = fmt.Errorf("%s has more than %d bytes", name, limit)
	}
	return b, err
}

// Dir opens a directory to work in with the ...at(2) calls, and creates it and its parents if they do not exist; for a
// link that leads nowhere, where that leads.
func (r *Root) Dir(name string, mode fs.FileMode) (*os.File, error) {
	return r.dirAt(name, mode, maxLinks)
}

func (r *Root) dirAt(name string, mode fs.FileMode, links int) (*os.File, error) {
	name = path.Clean("/" + name)
	d, err := r.OpenFile(name, unix.O_PATH|unix.O_DIRECTORY, 0)
	if !errors.Is(err, fs.ErrNotExist) || name == "/" {
		return d, err
	}
	if links == 0 {
		return nil, &fs.PathError{Op: "mkdir", Path: name, Err: unix.ELOOP}
	}
	parent, err := r.dirAt(path.Dir(name), mode, links)
	if err != nil {
		return nil, err
	}
	defer parent.Close()
	err = unix.Mkdirat(int(parent.Fd()), path.Base(name), uint32(mode.Perm()))
	switch {
	case err == nil:
		return r.OpenFile(name, unix.O_PATH|unix.O_DIRECTORY, 0)
	case !errors.Is(err, unix.EEXIST):
		return nil, &fs.PathError{Op: "mkdir", Path: name, Err: err}
	}
	link, err := r.Readlink(name)
	if err != nil {
		return nil, err
	}
	return r.dirAt(follow(name, link), mode, links-1)
}

// follow returns the target of a link at a name, inside its own system.
func follow(name, link string) string {
	if path.IsAbs(link) {
		return link
	}
	return path.Join(path.Dir(name), link)
}

// Readlink returns the target of a link, and "" for a file that is not a link.
func (r *Root) Readlink(name string) (string, error) {
	f, err := r.OpenFile(name, unix.O_PATH|unix.O_NOFOLLOW, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(int(f.Fd()), "", b)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.EINVAL): // not a link
		return "", nil
	case err != nil:
		return "", &fs.PathError{Op: "readlink", Path: name, Err: err}
	}
	return string(b[:n]), nil
}

// maxLinks bounds how many links Touch follows.
const maxLinks = 8

// Touch opens a file by O_PATH and creates it, and its directories, if it does not exist; for a link that
// leads nowhere, where that leads.
func (r *Root) Touch(name string) (*os.File, error) {
	for range maxLinks {
		f, err := r.OpenFile(name, unix.O_PATH, 0)
		if !errors.Is(err, fs.ErrNotExist) {
			return f, err
		}
		switch link, err := r.Readlink(name); {
		case errors.Is(err, fs.ErrNotExist):
			return r.create(name)
		case err != nil:
			return nil, err
		default:
			name = follow(name, link)
		}
	}
	return nil, &fs.PathError{Op: "touch", Path: name, Err: unix.ELOOP}
}

func (r *Root) create(name string) (*os.File, error) {
	dir, err := r.Dir(path.Dir(path.Clean("/"+name)), 0o755)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	fd, err := unix.Openat(int(dir.Fd()), path.Base(name), unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC,
		0o644)
	if err != nil {
		return nil, &fs.PathError{Op: "create", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}

// Symlink creates a link to any name. It fails if its own name exists.
func (r *Root) Symlink(to, name string) error {
	dir, err := r.Dir(path.Dir(path.Clean("/"+name)), 0o755)
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := unix.Symlinkat(to, int(dir.Fd()), path.Base(name)); err != nil {
		return &fs.PathError{Op: "symlink", Path: name, Err: err}
	}
	return nil
}

// Remove removes a file or link, if it exists.
func (r *Root) Remove(name string) error {
	name = path.Clean("/" + name)
	dir, err := r.OpenFile(path.Dir(name), unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	defer dir.Close()
	if err := unix.Unlinkat(int(dir.Fd()), path.Base(name), 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return &fs.PathError{Op: "remove", Path: name, Err: err}
	}
	return nil
}

// Meta is a file's mode (with the setuid, setgid and sticky bits as in chmod(2)) and owner; -1 leaves an owner as it
// is.
type Meta struct {
	Mode     uint32
	UID, GID int
}

// WriteFile replaces a file's content atomically, on stable storage. Missing directories are created; a link
// at the name itself is replaced.
func (r *Root) WriteFile(name string, data []byte, m Meta) error {
	dir, err := r.Dir(path.Dir(path.Clean("/"+name)), 0o755)
	if err != nil {
		return err
	}
	defer dir.Close()
	base := path.Base(name)
	temp := "." + base[:min(len(base), 200)] + ".trivet-new"
	if err := write(dir, temp, data, m); err != nil {
		unix.Unlinkat(int(dir.Fd()), temp, 0)
		return &fs.PathError{Op: "write", Path: name, Err: err}
	}
	if err := unix.Renameat(int(dir.Fd()), temp, int(dir.Fd()), base); err != nil {
		unix.Unlinkat(int(dir.Fd()), temp, 0)
		return &fs.PathError{Op: "rename", Path: name, Err: err}
	}
	return syncDir(dir)
}

func write(dir *os.File, name string, data []byte, m Meta) (err error) {
	if err := unix.Unlinkat(int(dir.Fd()), name, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC,
		0o600)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), name)
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := f.Write(data); err != nil {
		return err
	}
	if m.UID >= 0 || m.GID >= 0 {
		if err := unix.Fchown(fd, m.UID, m.GID); err != nil {
			return err
		}
	}
	if err := unix.Fchmod(fd, m.Mode); err != nil { // after chown, which clears the setuid bit
		return err
	}
	return f.Sync()
}

// syncDir makes a rename durable. dir was opened by O_PATH, which fsync does not accept.
func syncDir(dir *os.File) error {
	fd, err := unix.Openat(int(dir.Fd()), ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Fsync(fd)
}

// User and Group return the number of a name as the tree's own /etc/passwd and /etc/group have it; a number is itself.
func (r *Root) User(name string) (uid, gid int, err error) {
	if n, err := strconv.Atoi(name); err == nil && n >= 0 {
		_, gid, found, _ := r.account("/etc/passwd", 2, name)
		if !found {
			gid = 0
		}
		return n, gid, nil
	}
	uid, gid, found, err := r.account("/etc/passwd", 0, name)
	if err == nil && !found {
		err = fmt.Errorf("no user %q in /etc/passwd", name)
	}
	return uid, gid, err
}

// Group returns a group's number.
func (r *Root) Group(name string) (gid int, err error) {
	if n, err := strconv.Atoi(name); err == nil && n >= 0 {
		return n, nil
	}
	gid, _, found, err := r.account("/etc/group", 0, name)
	if err == nil && !found {
		err = fmt.Errorf("no group %q in /etc/group", name)
	}
	return gid, err
}

// maxAccounts bounds the files that accounts are read from, in bytes.
const maxAccounts = 4 << 20

// account finds the line whose field number key is value, and returns its third and fourth fields as numbers.
func (r *Root) account(file string, key int, value string) (third, fourth int, found bool, err error) {
	b, err := r.ReadFile(file, maxAccounts)
	if err != nil {
		return 0, 0, false, err
	}
	for line := range bytes.Lines(b) {
		f := strings.Split(strings.TrimSpace(string(line)), ":")
		if len(f) < 3 || f[key] != value {
			continue
		}
		third, err := strconv.Atoi(f[2])
		if err != nil || third < 0 {
			continue
		}
		if len(f) > 3 {
			fourth, _ = strconv.Atoi(f[3])
		}
		return third, max(fourth, 0), true, nil
	}
	return 0, 0, false, nil
}
