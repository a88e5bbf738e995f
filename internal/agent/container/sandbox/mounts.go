package sandbox

import (
	"errors"
	"io/fs"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/trivet-project/trivet/internal/agent/container/rootfs"
)

// Mount is one mount in the sandbox. A bind has no Type; with the Type "link" it is a symbolic link to Source instead.
type Mount struct {
	Source string  `json:"source"`
	Target string  `json:"target"` // in the root; created if it does not exist
	Type   string  `json:"type,omitempty"`
	Flags  uintptr `json:"flags,omitempty"`
	Data   string  `json:"data,omitempty"`
	// Optional: where the source is missing, or nothing has the target's name, it is left out.
	Optional bool `json:"optional,omitempty"`
}

// Bind returns a recursive bind mount of a file or directory of this system.
func Bind(source, target string) Mount {
	return Mount{Source: source, Target: target, Flags: unix.MS_BIND | unix.MS_REC}
}

// System is what most programs need to run in a root of their own. With devices they get the machine's, else only
// those that every program may have.
func System(devices bool) []Mount {
	mounts := []Mount{
		{Source: "proc", Target: "/proc", Type: "proc", Flags: unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC},
		Bind("/sys", "/sys"),
	}
	if devices {
		return append(mounts, Bind("/dev", "/dev"))
	}
	mounts = append(mounts,
		Mount{Source: "dev", Target: "/dev", Type: "tmpfs", Flags: unix.MS_NOSUID, Data: "mode=755,size=64k"},
		Mount{Source: "shm", Target: "/dev/shm", Type: "tmpfs", Flags: unix.MS_NOSUID | unix.MS_NODEV,
			Data: "mode=1777"},
		Mount{Source: "devpts", Target: "/dev/pts", Type: "devpts", Flags: unix.MS_NOSUID | unix.MS_NOEXEC,
			Data: "newinstance,ptmxmode=0666,mode=0620"},
	)
	for name, to := range map[string]string{"ptmx": "pts/ptmx", "fd": "/proc/self/fd", "stdin": "/proc/self/fd/0",
		"stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2"} {
		mounts = append(mounts, Mount{Source: to, Target: "/dev/" + name, Type: "link"})
	}
	for _, name := range []string{"null", "zero", "full", "random", "urandom", "tty"} {
		mounts = append(mounts, Bind("/dev/"+name, "/dev/"+name))
	}
	return mounts
}

// make does the mount in a root. Its target is looked up as the root's own system would, and then named by its
// descriptor: no link in the root leads the mount elsewhere.
func (m Mount) make(root *rootfs.Root) error {
	if m.Type == "link" {
		return root.Symlink(m.Source, m.Target)
	}
	source, err := os.Stat(m.Source)
	if m.Type == "" && err != nil {
		if m.Optional && errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	if _, err := root.Readlink(m.Target); m.Optional && errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var target *os.File
	if m.Type != "" || source.IsDir() {
		target, err = root.Dir(m.Target, 0o755)
	} else {
		target, err = root.Touch(m.Target)
	}
	if err != nil {
		return err
	}
	defer target.Close()
	return unix.Mount(m.Source, "/proc/self/fd/"+strconv.Itoa(int(target.Fd())), m.Type, m.Flags, m.Data)
}
