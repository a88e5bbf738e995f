package dhcp

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// network is a network namespace of the test's own with an interface "server", 10.99.0.1/24, whose other end
// "client" is in a second namespace and has no address. Both vanish with the test. Needs root.
type network struct {
	t   testing.TB
	pid string // a process in the client's namespace
}

// newNetwork moves the test's goroutine into the server's namespace, for good: its thread ends with it. Sockets
// must be opened by this goroutine; they work from any.
func newNetwork(t testing.TB) *network {
	t.Helper()
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatalf("new network namespace: %v (run as root)", err)
	}
	n := &network{t: t, pid: hold(t)}
	n.run("ip link set lo up")
	n.connect("server", "10.99.0.1/24", n.pid, "client")
	return n
}

// hold starts a process in another new namespace and returns its process ID.
func hold(t testing.TB) string {
	t.Helper()
	cmd := exec.Command("sleep", "infinity")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	return fmt.Sprint(cmd.Process.Pid)
}

// connect makes a pair of interfaces, one here with an address, the other in the process's namespace.
func (n *network) connect(here, addr, pid, there string) {
	n.t.Helper()
	n.run("ip link add " + here + " type veth peer name " + there + " netns " + pid)
	n.run("ip addr add " + addr + " brd + dev " + here)
	n.run("ip link set " + here + " up")
	n.run("nsenter -n -t " + pid + " ip link set " + there + " up")
	n.run("nsenter -n -t " + pid + " ip link set lo up")
}

func (n *network) run(command string) string {
	n.t.Helper()
	args := strings.Fields(command)
	out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
	if err != nil {
		n.t.Fatalf("%s: %v: %s (apt-get install iproute2 busybox isc-dhcp-client isc-dhcp-relay)", command, err, out)
	}
	return string(out)
}

// client runs a command in the client's namespace.
func (n *network) client(command string) string {
	n.t.Helper()
	return n.run("nsenter -n -t " + n.pid + " " + command)
}

// program is one that runs until the test ends, and its output line by line.
type program struct {
	t     testing.TB
	cmd   *exec.Cmd
	lines *bufio.Scanner
	read  []string
}

// start begins a program in the namespace of a process.
func (n *network) start(pid, command string, env ...string) *program {
	n.t.Helper()
	cmd := exec.Command("nsenter", append([]string{"-n", "-t", pid}, strings.Fields(command)...)...)
	cmd.Env = append(os.Environ(), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	r, w := io.Pipe()
	cmd.Stdout, cmd.Stderr = w, w
	if err := cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	exited := make(chan struct{})
	go func() {
		cmd.Wait()
		w.Close()
		close(exited)
	}()
	n.t.Cleanup(func() {
		cmd.Process.Kill()
		r.Close()
		<-exited
	})
	return &program{t: n.t, cmd: cmd, lines: bufio.NewScanner(r)}
}

// until waits for a line with the text, for a while.
func (p *program) until(text string) string {
	p.t.Helper()
	defer time.AfterFunc(20*time.Second, func() { p.cmd.Process.Kill() }).Stop()
	for p.lines.Scan() {
		p.read = append(p.read, p.lines.Text())
		if strings.Contains(p.lines.Text(), text) {
			return p.lines.Text()
		}
	}
	p.t.Fatalf("no line with %q in\n%s", text, strings.Join(p.read, "\n"))
	return ""
}
