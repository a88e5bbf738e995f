package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// side is a server's end of the network that scripts/bench made.
type side struct {
	namespace string
	address   string // the server's
	client    string // the client's, as this server sees it
	subnet    string
}

var (
	ours  = side{"bench-trivet", "10.16.0.1", "10.31.255.1", "10.16.0.0/12"}
	other = side{"bench-peer", "10.32.0.1", "10.47.255.1", "10.32.0.0/12"}
)

// program is a server that runs. It is killed by scripts/bench at the latest.
type program struct {
	cmd  *exec.Cmd
	done chan struct{}
	said string // file of its output
}

// start runs a server on its side.
func (b *bench) start(s side, name string, args ...string) (*program, error) {
	return b.startWith(s, nil, name, args...)
}

// startWith does so with more in its environment.
func (b *bench) startWith(s side, env []string, name string, args ...string) (*program, error) {
	said, err := os.CreateTemp(b.dir, filepath.Base(name)+"-*.log")
	if err != nil {
		return nil, err
	}
	defer said.Close()
	cmd := exec.Command("ip", append([]string{"netns", "exec", s.namespace, name}, args...)...)
	cmd.Env = append(os.Environ(), "KEA_PIDFILE_DIR="+b.dir, "KEA_LOCKFILE_DIR="+b.dir)
	cmd.Env = append(cmd.Env, env...)
	cmd.Stdout, cmd.Stderr = said, said
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	b.report.command(b.shown(name, args...))
	return attend(cmd, said.Name()), nil
}

// attend waits for the end of a program that was started.
func attend(cmd *exec.Cmd, said string) *program {
	p := &program{cmd: cmd, done: make(chan struct{}), said: said}
	go func() {
		_ = cmd.Wait()
		close(p.done)
	}()
	return p
}

// shown is a command line as a reader would type it.
func (b *bench) shown(name string, args ...string) string {
	text := strings.Join(append([]string{filepath.Base(name)}, args...), " ")
	return strings.ReplaceAll(text, b.dir, "$DIR")
}

// stop ends it in order, and returns when it has ended.
func (p *program) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(10 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.done
	}
}

// kill ends it at once, as a pulled plug does.
func (p *program) kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.done
}

// ended says whether it has.
func (p *program) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// await returns when ready says so; an error where the program ends or takes too long.
func (p *program) await(ready func() bool) error {
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		if ready() {
			return nil
		}
		if p.ended() {
			return p.fail("has ended")
		}
	}
	return p.fail("is not ready")
}

func (p *program) fail(how string) error {
	text, _ := os.ReadFile(p.said)
	return fmt.Errorf("%s %s: %s", p.cmd.Args[4], how, text[max(0, len(text)-2000):])
}

// memory is what the program has resident, in bytes.
func (p *program) memory() (int64, error) {
	status, err := os.ReadFile("/proc/" + strconv.Itoa(p.cmd.Process.Pid) + "/status")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return kib << 10, err
		}
	}
	return 0, errors.New("no VmRSS")
}

// cpu is the processor time that the program has used so far.
func (p *program) cpu() (time.Duration, error) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(p.cmd.Process.Pid) + "/stat")
	if err != nil {
		return 0, err
	}
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	user, errUser := strconv.Atoi(string(fields[11]))
	system, errSystem := strconv.Atoi(string(fields[12]))
	return time.Duration(user+system) * 10 * time.Millisecond, errors.Join(errUser, errSystem) // proc(5): USER_HZ is 100
}

// output runs a client program to its end. The exit codes given are fine, besides 0.
func (b *bench) output(fine []int, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(b.ctx, name, args...)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		for _, code := range fine {
			if exit.ExitCode() == code {
				return string(out), nil
			}
		}
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", b.shown(name, args...), err, out)
	}
	return string(out), nil
}
