package testhead

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// insideEnv is set in the process that has a network of its own.
const insideEnv = "TRIVET_TEST_OWN_NETWORK"

// OwnNetwork runs the tests of a package in another process, which has a network of its own: only the loopback
// interface, so that what their heads send to addresses of examples reaches nothing. It is called first by TestMain,
// and returns in that process. Users other than root are root of a user namespace there.
func OwnNetwork() {
	if os.Getenv(insideEnv) != "" {
		if out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
			fail(fmt.Errorf("ip link set lo up: %w: %s", err, out), "apt-get install iproute2")
		}
		return
	}
	runtime.LockOSThread() // the kernel kills the process at the end of the thread that started it
	cmd := Command("", "/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), insideEnv+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr.Cloneflags = unix.CLONE_NEWNET
	if uid := os.Geteuid(); uid != 0 {
		cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: uid, Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}}
	}
	if err := cmd.Run(); cmd.ProcessState == nil {
		fail(err, "run as root")
	}
	os.Exit(cmd.ProcessState.ExitCode())
}

func fail(err error, remedy string) {
	fmt.Fprintf(os.Stderr, "a network of the test's own: %v (%s)\n", err, remedy)
	os.Exit(1)
}
