package vm

import (
	"os/exec"
	"runtime"
	"syscall"
)

// process is a program that is killed when this process ends, even by SIGKILL.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
	err  error         // of the wait; set before done is closed
}

// start starts a command. The kernel kills it when the thread that started it ends, so that thread is kept.
func start(n *Network, cmd *exec.Cmd) (*process, error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	p := &process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: see Network.Do
		if err := n.enter(); err != nil {
			started <- err
			return
		}
		if err := cmd.Start(); err != nil {
			started <- err
			return
		}
		started <- nil
		p.err = cmd.Wait()
		close(p.done)
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// Start starts a program in the network. It is killed when this process ends. stop kills it and waits.
func Start(n *Network, cmd *exec.Cmd) (stop func(), err error) {
	p, err := start(n, cmd)
	if err != nil {
		return nil, err
	}
	return p.kill, nil
}

// running reports whether the process has not ended.
func (p *process) running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// kill kills the process and waits for its end.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.done
}
