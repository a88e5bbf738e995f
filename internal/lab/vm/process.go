package vm

import (
	"os/exec"
	"runtime"
	"syscall"
)

// process is a program that dies with this process, even if that is killed.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended and was waited for
	err  error         // of the wait; set before done is closed
}

// start starts a command. The kernel ties its life to the thread that started it, so that thread is kept until its end.
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

// Start starts a program in the network; it dies with this process, even if that is killed. stop ends it and waits.
func Start(n *Network, cmd *exec.Cmd) (stop func(), err error) {
	p, err := start(n, cmd)
	if err != nil {
		return nil, err
	}
	return p.kill, nil
}

// running says whether it has not ended.
func (p *process) running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// kill ends it and waits for its end.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // an error means that it has ended
	<-p.done
}
