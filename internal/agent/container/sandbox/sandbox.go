// Package sandbox runs a program in its own namespaces (mounts, processes, host name, IPC; optionally network), so
// that the program, its child processes and its mounts are gone when it ends or is cancelled. It is not a security
// boundary: the program is root of the machine.
//
// The calling binary is started again as the namespaces' first process, prepares the mounts there and becomes the
// program. This package's init is that child process, so that no main can forget to call it.
package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Spec is what to run, and where.
type Spec struct {
	Args []string `json:"args"` // Args[0] is looked up by the PATH in Env
	Env  []string `json:"env"`
	Dir  string   `json:"dir,omitempty"` // "/" by default
	// Root is a directory that becomes "/"; empty: the caller's. Mounts are made in it, in their order.
	Root     string  `json:"root,omitempty"`
	Mounts   []Mount `json:"mounts,omitempty"`
	Hostname string  `json:"hostname,omitempty"`
	NoNet    bool    `json:"noNet,omitempty"` // a network namespace with nothing in it
	UID      int     `json:"uid,omitempty"`
	GID      int     `json:"gid,omitempty"`

	Stdout io.Writer `json:"-"`
	Stderr io.Writer `json:"-"`
}

// ExitError means that the program ran and failed.
type ExitError struct {
	Code   int            // 0 when a signal ended it
	Signal syscall.Signal // 0 if it exited
}

func (e *ExitError) Error() string {
	if e.Signal != 0 {
		return fmt.Sprintf("killed by signal %d (%s)", int(e.Signal), e.Signal)
	}
	return fmt.Sprintf("exit status %d", e.Code)
}

// StartError means that the program was not started: it does not exist, or the sandbox could not be created.
type StartError struct {
	Step string // what failed: "mount /proc"
	Err  error  // a syscall.Errno if there is one
}

func (e *StartError) Error() string { return fmt.Sprintf("%s: %v", e.Step, e.Err) }

func (e *StartError) Unwrap() error { return e.Err }

const (
	childName = "trivet-sandbox" // argv[0] of the child
	specFD    = 3                // it reads its Spec here
	errorFD   = 4                // the child writes here why it could not start the program
)

// pipeDelay is how long output is still read when the program is dead.
const pipeDelay = 5 * time.Second

// Run runs the program to its end. Errors are *ExitError, *StartError or, when ctx ended it, ctx's cause.
func Run(ctx context.Context, s Spec) error {
	if len(s.Args) == 0 {
		return &StartError{"start", errors.New("no program")}
	}
	spec, err := json.Marshal(s)
	if err != nil {
		return &StartError{"start", err}
	}
	specRead, specWrite, err := os.Pipe()
	if err != nil {
		return &StartError{"start", err}
	}
	defer specRead.Close()
	errRead, errWrite, err := os.Pipe()
	if err != nil {
		return &StartError{"start", errors.Join(err, specWrite.Close())}
	}
	defer errRead.Close()

	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Args = []string{childName}
	cmd.Env = []string{}
	cmd.Stdout, cmd.Stderr = s.Stdout, s.Stderr
	cmd.ExtraFiles = []*os.File{specRead, errWrite}
	cmd.WaitDelay = pipeDelay
	cmd.SysProcAttr = attributes(s)

	// The child dies with the thread that started it, so that thread must exist as long.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err = cmd.Start()
	errWrite.Close()
	if err != nil {
		return &StartError{"start", errors.Join(err, specWrite.Close())}
	}
	_, errSpec := specWrite.Write(spec)
	errSpec = errors.Join(errSpec, specWrite.Close())
	message, _ := io.ReadAll(io.LimitReader(errRead, 4096))
	err = cmd.Wait()
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case len(message) > 0:
		return startError(message)
	case errSpec != nil:
		return &StartError{"start", errSpec}
	}
	return exitError(cmd.ProcessState, err)
}

// attributes makes the child the first process of new namespaces. Without root it gets a user namespace in which it
// is root.
func attributes(s Spec) *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC,
		Pdeathsig:  syscall.SIGKILL,
		Setsid:     true,
	}
	if s.NoNet {
		a.Cloneflags |= unix.CLONE_NEWNET
	}
	if os.Geteuid() != 0 {
		a.Cloneflags |= unix.CLONE_NEWUSER
		a.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
		a.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	}
	return a
}

// exitError converts the exit of the program to the error that Run returns. A process that is killed with its
// namespace is not waited for by name, so the first process's end is all there is to know.
func exitError(state *os.ProcessState, err error) error {
	if state == nil {
		return &StartError{"wait", err}
	}
	status, ok := state.Sys().(syscall.WaitStatus)
	switch {
	case ok && status.Signaled():
		return &ExitError{Signal: status.Signal()}
	case state.ExitCode() != 0:
		return &ExitError{Code: state.ExitCode()}
	case errors.Is(err, exec.ErrWaitDelay): // exited with 0; what it left running held its output open and was killed
		return nil
	}
	return err
}

// childError is the child's report of what failed.
type childError struct {
	Step  string        `json:"step"`
	Errno syscall.Errno `json:"errno,omitempty"`
	Text  string        `json:"text"`
}

func startError(b []byte) error {
	var s childError
	if err := json.Unmarshal(b, &s); err != nil {
		return &StartError{"start", fmt.Errorf("unexpected message of the child: %q", b)}
	}
	if s.Errno != 0 {
		return &StartError{s.Step, s.Errno}
	}
	return &StartError{s.Step, errors.New(s.Text)}
}

// Lookup returns a variable of an environment.
func Lookup(env []string, name string) string {
	i := slices.IndexFunc(env, func(e string) bool { return len(e) > len(name) && e[:len(name)+1] == name+"=" })
	if i < 0 {
		return ""
	}
	return env[i][len(name)+1:]
}
