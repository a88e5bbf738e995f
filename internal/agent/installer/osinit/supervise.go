package osinit

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// supervise runs the agent until it succeeds or has failed too often.
func (c *console) supervise(env Env) (After, error) {
	for {
		status, output, err := c.runAgent(env)
		if err != nil {
			return Reboot, err
		}
		if after := After(status.ExitStatus() - exitAfter); status.Exited() && after >= Reboot && after <= Kexec {
			return after, nil
		}
		how := describe(status)
		if env.Restarts++; env.Restarts > maxRestarts {
			return Reboot, fmt.Errorf("agent ended with %s, for the %dth time", how, env.Restarts)
		}
		env.LastOutput = output + how
		c.printf("agent ended with %s; starting it again (%d of %d) in %s", how, env.Restarts, maxRestarts,
			restartPause)
		time.Sleep(restartPause)
	}
}

func describe(status syscall.WaitStatus) string {
	if status.Signaled() {
		return "signal " + status.Signal().String()
	}
	return fmt.Sprintf("exit status %d", status.ExitStatus())
}

// runAgent runs an agent to its end and returns the tail of its output.
func (c *console) runAgent(env Env) (status syscall.WaitStatus, output string, err error) {
	if err := env.write(); err != nil {
		return 0, "", fmt.Errorf("start agent: %w", err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		return 0, "", fmt.Errorf("start agent: %w", err)
	}
	defer r.Close()
	pid, err := startAgent(w)
	w.Close()
	if err != nil {
		return 0, "", fmt.Errorf("start agent: %w", err)
	}
	printed := make(chan string, 1)
	go c.guarded("console", func() { printed <- c.follow(r) })
	if status, err = reap(pid); err != nil {
		return 0, "", err
	}
	_ = unix.Kill(-1, unix.SIGKILL) // programs that it started must not outlive it
	select {
	case output = <-printed:
	case <-time.After(time.Second): // a process that hangs in the kernel keeps the pipe open
	}
	return status, output, nil
}

// startAgent starts this binary in the role of the agent.
func startAgent(out *os.File) (pid int, err error) {
	null, err := os.Open("/dev/null")
	if err != nil {
		return 0, err
	}
	defer null.Close()
	return syscall.ForkExec("/init", []string{"trivet-agent"}, &syscall.ProcAttr{
		Dir:   "/",
		Env:   []string{roleName + "=" + roleAgent, "PATH=/sbin:/bin:/usr/sbin:/usr/bin", "HOME=/root", "TERM=linux"},
		Files: []uintptr{null.Fd(), out.Fd(), out.Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
}

// reap waits for a process and reaps every orphan until it ends, as process 1 must.
func reap(pid int) (syscall.WaitStatus, error) {
	for {
		var status syscall.WaitStatus
		got, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case got == pid:
			return status, nil
		case err != nil && !errors.Is(err, unix.EINTR):
			return 0, fmt.Errorf("wait for agent: %w", err)
		}
	}
}
