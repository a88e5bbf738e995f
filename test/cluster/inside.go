package cluster

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// insideEnv is set in the process that has namespaces of its own.
const insideEnv = "TRIVET_CLUSTER_TEST_INSIDE"

// packages is the command that installs what this package runs.
const packages = "apt-get install iproute2 nftables e2fsprogs util-linux"

// isInside reports whether this process is the one that goInside started.
func isInside() bool { return os.Getenv(insideEnv) != "" }

// goInside runs this program again in network, mount and process namespaces of its own, so that the test has no effect
// outside, and ends completely with this process. It returns the program's exit status.
func goInside() (status int, err error) {
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), insideEnv+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWPID, Pdeathsig: syscall.SIGKILL,
	}
	var ended *exec.ExitError
	switch err := cmd.Run(); {
	case err == nil:
		return 0, nil
	case errors.As(err, &ended):
		return max(ended.ExitCode(), 1), nil
	default:
		return 1, fmt.Errorf("namespaces of the test's own: %w (run as root)", err)
	}
}

// setUp prepares the namespaces: private mounts, /proc of the new process namespace, loopback.
func setUp() error {
	if err := os.MkdirAll("/run/netns", 0o755); err != nil {
		return err
	}
	err := errors.Join(
		unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		unix.Mount("proc", "/proc", "proc", 0, ""),
		unix.Mount("tmpfs", "/run/netns", "tmpfs", 0, ""),
	)
	if err != nil {
		return err
	}
	return ip("link", "set", "lo", "up")
}
