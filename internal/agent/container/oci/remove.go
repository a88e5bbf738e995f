package oci

import (
	"errors"
	"io"
	"os"
	"path"
	"strconv"

	"golang.org/x/sys/unix"
)

func procPath(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// remove removes a name and everything below it.
func remove(dir *os.File, name string) error {
	if name == "" || name == "." || name == ".." {
		return nil
	}
	return removeAt(int(dir.Fd()), name)
}

// removeAt follows no links. A name that does not exist is no error.
func removeAt(dir int, name string) error {
	err := unix.Unlinkat(dir, name, 0)
	if err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	if !errors.Is(err, unix.EISDIR) && !errors.Is(err, unix.EPERM) {
		return err
	}
	inner, err := openDir(dir, name)
	if err != nil {
		return err
	}
	defer inner.Close()
	if err := eachName(inner, func(child string) error { return removeAt(int(inner.Fd()), child) }); err != nil {
		return err
	}
	return unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)
}

// clearDir removes everything that layers below put into a directory.
func clearDir(dir *os.File, name string, made map[string]bool) error {
	open, err := openDir(int(dir.Fd()), ".")
	if err != nil {
		return err
	}
	defer open.Close()
	return eachName(open, func(child string) error {
		if made[path.Join(name, child)] {
			return nil
		}
		return removeAt(int(open.Fd()), child)
	})
}

func openDir(dir int, name string) (*os.File, error) {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

func eachName(dir *os.File, f func(name string) error) error {
	for {
		names, err := dir.Readdirnames(512)
		for _, name := range names {
			if err := f(name); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}
