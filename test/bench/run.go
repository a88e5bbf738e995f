package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/trivet-project/trivet/internal/testhead"
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
	*testhead.Process
	log string // file of its output
}

// start runs a server on its side.
func (b *bench) start(s side, name string, args ...string) (*program, error) {
	return b.startWith(s, nil, name, args...)
}

// startWith runs a server with more in its environment.
func (b *bench) startWith(s side, env []string, name string, args ...string) (*program, error) {
	log, err := os.CreateTemp(b.dir, filepath.Base(name)+"-*.log")
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := testhead.Command(s.namespace, name, args...)
	cmd.Env = append(os.Environ(), "KEA_PIDFILE_DIR="+b.dir, "KEA_LOCKFILE_DIR="+b.dir)
	cmd.Env = append(cmd.Env, env...)
	cmd.Stdout, cmd.Stderr = log, log
	p, err := testhead.Start(cmd)
	if err != nil {
		return nil, err
	}
	b.report.command(b.shown(name, args...))
	return &program{p, log.Name()}, nil
}

// startServer starts a server on the other side, and waits until it listens on a port.
func (b *bench) startServer(protocol string, port int, name string, args ...string) (*program, error) {
	p, err := b.start(other, name, args...)
	if err != nil {
		return nil, err
	}
	if err := p.await(func() bool { return b.listens(other, protocol, port) }); err != nil {
		p.stop()
		return nil, err
	}
	return p, nil
}

// listens reports whether a port has a listener on a side.
func (b *bench) listens(s side, protocol string, port int) bool {
	out, err := b.output(nil, "ip", "netns", "exec", s.namespace, "ss", "-Hln", "--"+protocol, "sport", "=",
		fmt.Sprint(":", port))
	return err == nil && out != ""
}

// shown is a command line as a reader would type it.
func (b *bench) shown(name string, args ...string) string {
	text := strings.Join(append([]string{filepath.Base(name)}, args...), " ")
	return strings.ReplaceAll(text, b.dir, "$DIR")
}

// stop ends it in order, and returns when it has ended.
func (p *program) stop() { _ = p.Stop(10 * time.Second) }

// startTime is how long a program may take to start. A bound of it is another one's.
const startTime = 5 * time.Minute

// await returns when ready is true; an error if the program ends or takes too long.
func (p *program) await(ready func() bool) error {
	if err := p.Await(ready, startTime); err != nil {
		text, _ := os.ReadFile(p.log)
		return fmt.Errorf("%s: %w: %s", p.Cmd.Args[4], err, text[max(0, len(text)-2000):])
	}
	return nil
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
