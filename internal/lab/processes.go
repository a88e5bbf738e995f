package lab

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/server"
	"github.com/trivet-project/trivet/internal/wait"
)

// headProcesses are the heads of one cluster, each a process with its own loopback address, so that it can be killed.
type headProcesses struct {
	demo     *Demo
	programs string
	subnet   string // "127.77.3."
	all      []*headProcess
	client   *client.Client
}

// headProcess is one head.
type headProcess struct {
	site *headProcesses
	name string // of its data directory and log
	host string
	join []string // flags that let it join; none: it is the first one

	mu   sync.Mutex
	cmd  *exec.Cmd     // guarded by mu; nil: it does not run
	done chan struct{} // guarded by mu; closed when cmd has ended
}

// startHeads starts the heads, each of which joins the first, and returns when all are members.
func startHeads(ctx context.Context, d *Demo) (*headProcesses, error) {
	s := &headProcesses{demo: d, programs: filepath.Join(d.Dir, "ipxe"),
		subnet: fmt.Sprintf("127.%d.%d.", 64+rand.IntN(60), rand.IntN(256))}
	err := simulatedPrograms(s.programs)
	for i := 0; i < d.Heads && err == nil; i++ {
		n := s.newHead()
		d.status("starting head %d of %d", i+1, d.Heads)
		err = s.add(ctx, n)
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// newHead adds a head that has not started, at the next address.
func (s *headProcesses) newHead() *headProcess {
	i := len(s.all)
	n := &headProcess{site: s, name: fmt.Sprint("head", i), host: s.subnet + fmt.Sprint(i+1)}
	s.all = append(s.all, n)
	return n
}

// add starts a head for the first time.
func (s *headProcesses) add(ctx context.Context, n *headProcess) error {
	if n == s.all[0] {
		if err := n.start(ctx); err != nil {
			return err
		}
		return s.connect()
	}
	role := trivet.RoleVoter
	if s.demo.standby {
		role = trivet.RoleStandby
	}
	token, _, err := s.client.IssueJoin(ctx, role, 0)
	if err != nil {
		return err
	}
	return s.startJoining(ctx, n, token, s.all[0].api())
}

// startJoining starts a head that joins at these URLs, and waits until it is a member.
func (s *headProcesses) startJoining(ctx context.Context, n *headProcess, token string, urls ...string) error {
	n.join = []string{"--join", strings.Join(urls, ",")}
	if err := n.start(ctx, "TRIVET_JOIN_TOKEN="+token); err != nil {
		return err
	}
	return s.waitFor(ctx, "wait for "+n.name+" to be a member", func() bool {
		all, _, err := client.Of[trivet.Head](s.client).List(ctx, client.ListOptions{})
		return err == nil && slices.ContainsFunc(all, func(h *trivet.Head) bool {
			return h.Status.Peer == n.api() && h.Status.State == trivet.HeadMember
		})
	})
}

func (s *headProcesses) connect() error {
	file, err := client.ReadFile(server.AdminFile(s.all[0].dir()))
	if err != nil {
		return err
	}
	c, err := file.Pick("")
	if err != nil {
		return err
	}
	var urls []string
	for i := range s.demo.Heads {
		urls = append(urls, "https://"+s.subnet+fmt.Sprint(i+1)+":7480")
	}
	s.client, err = client.New(client.Config{Endpoints: urls, Trust: c.Trust, Token: c.Token, UserAgent: "trivet-demo"})
	return err
}

// program returns the path of the program that runs heads and commands.
func (d *Demo) program() (string, error) {
	if d.Program != "" {
		return d.Program, nil
	}
	return os.Executable()
}

// dhcp returns the addresses where the heads serve DHCP relays.
func (s *headProcesses) dhcp() (addresses []string) {
	for _, n := range s.all {
		addresses = append(addresses, n.host+":7067")
	}
	return addresses
}

// leader returns the head that is the store's leader, or nil if unknown.
func (s *headProcesses) leader(ctx context.Context) *headProcess {
	cluster, err := s.client.Cluster(ctx)
	if err != nil {
		return nil
	}
	for _, n := range s.all {
		leads := func(h trivet.HeadView) bool { return h.State == "leader" && h.Name == n.name }
		if slices.ContainsFunc(cluster.Heads, leads) {
			return n
		}
	}
	return nil
}

// running returns the heads that run.
func (s *headProcesses) running() (all []*headProcess) {
	for _, n := range s.all {
		n.mu.Lock()
		if n.cmd != nil {
			all = append(all, n)
		}
		n.mu.Unlock()
	}
	return all
}

func (s *headProcesses) close() {
	for _, n := range s.all {
		n.kill()
	}
	if s.client != nil {
		s.client.Close()
	}
}

// startTimeout bounds the start of a head.
const startTimeout = time.Minute

// waitFor polls a condition until it is true or the timeout ends.
func (s *headProcesses) waitFor(ctx context.Context, what string, done func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for !done() {
		_ = wait.Sleep(ctx, 50*time.Millisecond)
		if ctx.Err() != nil {
			return fmt.Errorf("%s: %w", what, context.Cause(ctx))
		}
	}
	return nil
}

// api returns the URL of the head's API.
func (n *headProcess) api() string { return "https://" + n.host + ":7480" }

// dir returns the head's data directory.
func (n *headProcess) dir() string { return filepath.Join(n.site.demo.Dir, n.name) }

// start starts the head and returns when it serves requests.
func (n *headProcess) start(ctx context.Context, env ...string) error {
	if err := n.launch(env...); err != nil {
		return err
	}
	return n.awaitServing(ctx)
}

// launch starts the head's process.
func (n *headProcess) launch(env ...string) error {
	logFile, err := os.OpenFile(n.dir()+".log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer logFile.Close()
	program, err := n.site.demo.program()
	if err != nil {
		return err
	}
	args := []string{"server", "--shared-addresses", "127.0.0.0/8", "--data-dir", n.dir(), "--advertise", n.host,
		"--api", n.host + ":7480", "--boot", n.host + ":7481", "--tftp", n.host + ":7069", "--dhcp-listen", n.host + ":7067",
		"--ipxe", n.site.programs}
	cmd := exec.Command(program, append(args, n.join...)...)
	// A token in the environment is of another cluster.
	cmd.Env = append(append(os.Environ(), "TRIVET_JOIN_TOKEN="), env...)
	cmd.Stdout, cmd.Stderr = logFile, logFile
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", n.name, err)
	}
	done := make(chan struct{})
	go func() { _ = cmd.Wait(); close(done) }() // awaited by end
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cmd, n.done = cmd, done
	return nil
}

// awaitServing waits until the head serves requests. One that ends fails.
func (n *headProcess) awaitServing(ctx context.Context) error {
	n.mu.Lock()
	done := n.done
	n.mu.Unlock()
	ended := false
	err := n.site.waitFor(ctx, "wait for "+n.name, func() bool {
		select {
		case <-done:
			ended = true
			return true
		default:
			return n.serves(ctx)
		}
	})
	if ended {
		err = fmt.Errorf("%s has ended: %s", n.name, n.logTail())
	}
	return err
}

// serves reports whether the boot listener, which is started last, responds.
func (n *headProcess) serves(ctx context.Context) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.host+":7481/livez", nil)
	if err != nil {
		return false
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	return resp.Body.Close() == nil && resp.StatusCode == http.StatusOK
}

// kill kills the head with SIGKILL and reports whether it was running.
func (n *headProcess) kill() bool { return n.end(syscall.SIGKILL) }

// end ends the head by a signal and reports whether it was running.
func (n *headProcess) end(signal syscall.Signal) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cmd == nil {
		return false
	}
	_ = n.cmd.Process.Signal(signal) // it may have exited
	<-n.done
	n.cmd = nil
	return true
}

// logTail returns the end of the head's log.
func (n *headProcess) logTail() string {
	text, _ := os.ReadFile(n.dir() + ".log")
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-3):], "\n")
}
