// Package testhead runs heads, and other programs, as real processes for tests: it starts them, captures their
// output, waits until they are ready, sends them signals, and runs operator commands against them.
//
// Process, Log, Command and Eventually need no test, for harnesses with a lifetime of their own. Head is for tests.
package testhead

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Process is a program that was started.
type Process struct {
	Cmd *exec.Cmd
	Log *Log // its output, unless the command had a writer of its own

	done chan struct{} // closed when it has ended
}

// Command returns a command in a network namespace; an empty namespace is this process's own. The process is the
// program itself, so that a signal reaches it, and is killed when this process ends.
func Command(namespace, program string, args ...string) *exec.Cmd {
	cmd := exec.Command(program, args...)
	if namespace != "" {
		cmd = exec.Command("ip", append([]string{"netns", "exec", namespace, program}, args...)...)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// Start starts a command. The kernel kills it at the end of the thread that started it, so that thread is kept until
// then.
func Start(cmd *exec.Cmd) (*Process, error) {
	p := &Process{Cmd: cmd, Log: NewLog(), done: make(chan struct{})}
	if cmd.Stdout == nil {
		cmd.Stdout, cmd.Stderr = p.Log, p.Log
	}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // ExitCode reads the status
			p.Log.End()
			close(p.done)
		}
	}()
	return p, <-started
}

// PID returns the process's ID.
func (p *Process) PID() int { return p.Cmd.Process.Pid }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Ended reports whether the process has ended.
func (p *Process) Ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// ExitCode returns the status of a process that has ended; below 0 if a signal ended it.
func (p *Process) ExitCode() int { return p.Cmd.ProcessState.ExitCode() }

// Signal sends a signal. The process may have ended.
func (p *Process) Signal(s syscall.Signal) { _ = p.Cmd.Process.Signal(s) }

// Kill ends the process by SIGKILL and returns when it has ended.
func (p *Process) Kill() {
	p.Signal(syscall.SIGKILL)
	<-p.done
}

// Wait returns when the process has ended, or an error after a time.
func (p *Process) Wait(limit time.Duration) error {
	select {
	case <-p.done:
		return nil
	case <-time.After(limit):
		return fmt.Errorf("process %d has not ended after %s", p.PID(), limit)
	}
}

// Stop ends the process by SIGTERM. One that does not end in time is killed, which is an error.
func (p *Process) Stop(limit time.Duration) error {
	p.Signal(syscall.SIGTERM)
	err := p.Wait(limit)
	if err != nil {
		p.Kill()
	}
	return err
}

// Await returns when ready is true, or an error when the process has ended or the time is over.
func (p *Process) Await(ready func() bool, limit time.Duration) error {
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		if ready() {
			return nil
		}
		if p.Ended() {
			return errors.New("the process has ended")
		}
	}
	return fmt.Errorf("the process is not ready after %s", limit)
}

// Resident returns the process's resident memory in bytes.
func (p *Process) Resident() (int64, error) { return p.memory("VmRSS:") }

// Anonymous returns the part of the process's resident memory that is its own: not pages of files, which the kernel
// takes back when it needs memory.
func (p *Process) Anonymous() (int64, error) { return p.memory("RssAnon:") }

// memory returns a field of /proc/PID/status.
func (p *Process) memory(field string) (int64, error) { return memoryOf(p.PID(), field) }

// PeakOf returns the most memory that a process has had resident, in bytes, with pages of files.
func PeakOf(pid int) (int64, error) { return memoryOf(pid, "VmHWM:") }

func memoryOf(pid int, field string) (int64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, field); ok {
			kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return kib << 10, err
		}
	}
	return 0, errors.New("no " + field)
}

// CPU returns the processor time that the process has used.
func (p *Process) CPU() (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID()))
	if err != nil {
		return 0, err
	}
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	user, errUser := strconv.Atoi(string(fields[11]))
	system, errSystem := strconv.Atoi(string(fields[12]))
	const tick = 10 * time.Millisecond // proc(5): USER_HZ is 100
	return time.Duration(user+system) * tick, errors.Join(errUser, errSystem)
}
