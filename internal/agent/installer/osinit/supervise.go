package osinit

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// supervise runs the agent until it ends well or has ended badly too often.
func (c *console) supervise(env Env) (After, error) {
	for {
		status, words, err := c.runAgent(env)
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
		env.LastWords = words + how
		c.say("agent ended with %s; starting it again (%d of %d) in %s", how, env.Restarts, maxRestarts, restartPause)
		time.Sleep(restartPause)
	}
}

func describe(status syscall.WaitStatus) string {
	if status.Signaled() {
		return "signal " + status.Signal().String()
	}
	return fmt.Sprintf("exit status %d", status.ExitStatus())
}

// runAgent starts an agent and returns when it has ended, with the last it printed.
func (c *console) runAgent(env Env) (status syscall.WaitStatus, words string, err error) {
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
	said := make(chan string, 1)
	go c.guarded("console", func() { said <- c.follow(r) })
	if status, err = reap(pid); err != nil {
		return 0, "", err
	}
	_ = unix.Kill(-1, unix.SIGKILL) // what it started must not go on when it is started again
	select {
	case words = <-said:
	case <-time.After(time.Second): // a process that hangs in the kernel holds the pipe
	}
	return status, words, nil
}

// startAgent starts this binary again, in its part as agent.
func startAgent(out *os.File) (pid int, err error) {
	null, err := os.Open("/dev/null")
	if err != nil {
		return 0, err
	}
	defer null.Close()
	return syscall.ForkExec("/init", []string{"trivet-agent"}, &syscall.ProcAttr{
		Dir:   "/",
		Env:   []string{partName + "=" + partAgent, "PATH=/sbin:/bin:/usr/sbin:/usr/bin", "HOME=/root", "TERM=linux"},
		Files: []uintptr{null.Fd(), out.Fd(), out.Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
}

// reap waits for a process and, until it ends, buries every orphan, as process 1 must.
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
