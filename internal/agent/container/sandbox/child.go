package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/trivet-project/trivet/internal/agent/container/rootfs"
)

func init() {
	if len(os.Args) > 0 && os.Args[0] == childName {
		child()
	}
}

// child does not return.
func child() {
	unix.CloseOnExec(specFD)
	unix.CloseOnExec(errorFD)
	step, err := become()
	s := childError{Step: step, Text: err.Error()}
	errors.As(err, &s.Errno)
	json.NewEncoder(os.NewFile(errorFD, "errors")).Encode(s)
	os.Exit(127)
}

// become prepares the namespaces and executes the program. It returns only if that fails.
func become() (step string, err error) {
	var s Spec
	if err := json.NewDecoder(os.NewFile(specFD, "spec")).Decode(&s); err != nil {
		return "read what to run", err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return "keep mounts apart", err
	}
	if step, err := enter(s); err != nil {
		return step, err
	}
	if s.Hostname != "" {
		if err := unix.Sethostname([]byte(s.Hostname)); err != nil {
			return "set the host name", err
		}
	}
	if s.Dir == "" {
		s.Dir = "/"
	}
	if err := os.Chdir(s.Dir); err != nil {
		return "change to " + s.Dir, err
	}
	if s.UID != 0 || s.GID != 0 {
		if err := errors.Join(syscall.Setgroups([]int{s.GID}), syscall.Setgid(s.GID),
			syscall.Setuid(s.UID)); err != nil {
			return fmt.Sprintf("become user %d:%d", s.UID, s.GID), err
		}
	}
	os.Setenv("PATH", Lookup(s.Env, "PATH"))
	program, err := exec.LookPath(s.Args[0])
	if err != nil && !errors.Is(err, exec.ErrDot) {
		return "find the program", err
	}
	if program, err = filepath.Abs(program); err != nil {
		return "find the program", err
	}
	return "run " + program, syscall.Exec(program, s.Args, s.Env)
}

// enter creates the mounts and then the new root.
func enter(s Spec) (step string, err error) {
	dir := s.Root
	if dir == "" {
		dir = "/"
	} else if err := unix.Mount(dir, dir, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		// only a mount can become the root
		return "mount the root " + dir, err
	}
	root, err := rootfs.Open(dir)
	if err != nil {
		return "open the root " + dir, err
	}
	defer root.Close()
	for _, m := range s.Mounts {
		if err := m.make(root); err != nil {
			return "mount " + m.Target, err
		}
	}
	if s.Root == "" {
		return "", nil
	}
	if err := os.Chdir(dir); err != nil {
		return "change to the root", err
	}
	return "enter the root", pivot()
}

// pivot makes the working directory the root and unmounts the old one. An initramfs cannot be unmounted: there the new
// root is moved over it.
func pivot() error {
	err := unix.PivotRoot(".", ".")
	switch {
	case err == nil:
		err = unix.Unmount(".", unix.MNT_DETACH)
	case errors.Is(err, unix.EINVAL):
		if err = unix.Mount(".", "/", "", unix.MS_MOVE, ""); err == nil {
			err = unix.Chroot(".")
		}
	}
	return errors.Join(err, os.Chdir("/"))
}
