package hostnet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/cluster"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/storetest"
)

var shared = netip.MustParsePrefix("10.98.0.9/24")

// TestMain is also the process that has the address until it is killed.
func TestMain(m *testing.M) {
	if os.Getenv("VIP_TEST_HOLD") == "" {
		os.Exit(m.Run())
	}
	v, err := New(Config{Address: shared, Interface: "eth0", Log: slog.Default()})
	ctx, cancel := context.WithCancel(context.Background())
	until := time.Now().Add(time.Hour)
	if os.Getenv("VIP_TEST_HOLD") == "lease" { // a lease that is not renewed, and whose timer fires late
		until = time.Now().Add(own)
		time.AfterFunc(4*own, cancel)
	}
	if err == nil {
		err = v.keep(ctx, func() bool { return time.Now().Before(until) })
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

const own = ttl - ttl/4

// hold starts a process that has the address.
func (b host) hold(t *testing.T, how string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("ip", "netns", "exec", string(b), self)
	cmd.Env = append(os.Environ(), "VIP_TEST_HOLD="+how)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // it may have ended
	until(t, "the address is there", func() bool { return b.has(t) })
	return cmd
}

func send(t *testing.T, cmd *exec.Cmd, signal syscall.Signal) {
	t.Helper()
	if err := cmd.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
}

// host is a host: a namespace with an interface eth0, plugged into a switch.
type host string

// networks counts those of newHosts, so that each has names of its own.
var networks atomic.Int32

// newHosts plugs hosts head0 (10.98.0.1), head1 and client into one switch.
func newHosts(t *testing.T) []host {
	t.Helper()
	n := networks.Add(1)
	name := func(of string) host { return host(fmt.Sprintf("vip-%s-%d", of, n)) }
	lan, hosts := name("switch"), []host{name("head0"), name("head1"), name("client")}
	for _, b := range append([]host{lan}, hosts...) {
		_ = exec.Command("ip", "netns", "delete", string(b)).Run() // of a test that was killed
		run(t, "ip netns add %s", b)
		t.Cleanup(func() { run(t, "ip netns delete %s", b) })
	}
	run(t, "ip -n %s link add lan type bridge forward_delay 0", lan)
	run(t, "ip -n %s link set lan up", lan)
	for i, b := range hosts {
		run(t, "ip -n %s link add p%d type veth peer name eth0 netns %s", lan, i, b)
		run(t, "ip -n %s link set p%d master lan up", lan, i)
		run(t, "ip -n %s address add 10.98.0.%d/24 dev eth0", b, i+1)
		run(t, "ip -n %s link set eth0 up", b)
		run(t, "ip -n %s link set lo up", b)
	}
	return hosts
}

func run(t *testing.T, format string, args ...any) string {
	t.Helper()
	words := strings.Fields(fmt.Sprintf(format, args...))
	out, err := exec.Command(words[0], words[1:]...).CombinedOutput()
	if err != nil {
		t.Errorf("%q: %v: %s (as root; apt-get install iproute2)", words, err, out)
	}
	return string(out)
}

func (b host) has(t *testing.T) bool {
	return strings.Contains(run(t, "ip -n %s address show dev eth0", b), " "+shared.Addr().String()+"/")
}

func (b host) mac(t *testing.T) string {
	return strings.TrimSpace(run(t, "ip netns exec %s cat /sys/class/net/eth0/address", b))
}

// inside runs a function on a thread of the namespace: what it opens stays there.
func (b host) inside(t *testing.T, do func() error) {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		f, err := os.Open("/run/netns/" + string(b))
		if err == nil {
			defer f.Close()
			err = unix.Setns(int(f.Fd()), unix.CLONE_NEWNET)
		}
		if err == nil {
			err = do()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// until waits for a change by the kernel or another head.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within 30 s: %s", what)
		}
	}
}

// The kernel removes the address of a process that is killed or stopped.
func TestKernelRemovesTheAddress(t *testing.T) {
	b := newHosts(t)[0]
	for _, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGSTOP} {
		cmd := b.hold(t, "for long")
		send(t, cmd, signal)
		at := time.Now()
		until(t, "the address is gone", func() bool { return !b.has(t) })
		t.Logf("%s: gone after %s", signal, time.Since(at).Round(time.Millisecond))
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
}

// A process that was stopped for longer than its lease finds all its timers due at once. It does not set the
// address again, which another head may have by then.
func TestStoppedProcess(t *testing.T) {
	b := newHosts(t)[0]
	cmd := b.hold(t, "lease")
	send(t, cmd, syscall.SIGSTOP)
	at := time.Now()
	until(t, "the address is gone and the lease over", func() bool { return !b.has(t) && time.Since(at) > own })
	changes := b.monitor(t)
	send(t, cmd, syscall.SIGCONT)
	_ = cmd.Wait()
	if got := changes(); strings.Contains(got, shared.Addr().String()) {
		t.Errorf("the address was there again:\n%s", got)
	}
}

// monitor watches the addresses of a host. changes returns those until it is called.
func (b host) monitor(t *testing.T) (changes func() string) {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "changes"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	cmd := exec.Command("ip", "-n", string(b), "monitor", "address")
	cmd.Stdout = file
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }) // it ends in no other way
	seen := func(mark string) (text string) {
		until(t, "the monitor receives "+mark, func() bool {
			run(t, "ip -n %s address replace %s/32 dev lo", b, mark)
			run(t, "ip -n %s address delete %s/32 dev lo", b, mark)
			data, err := os.ReadFile(file.Name())
			text = string(data)
			return err == nil && strings.Contains(text, mark)
		})
		return text
	}
	seen("192.0.2.1")
	return func() string { return seen("192.0.2.2") }
}

// head shares the address, and answers requests at it with its name.
type head struct {
	*VIP
	store *store.Store
	stop  func()
}

// leaseOf returns the leases of a store as a WithLease.
func leaseOf(s *store.Store) WithLease {
	return func(ctx context.Context, name string, ttl time.Duration,
		do func(context.Context, func() bool) error) error {
		return s.WithLease(ctx, name, ttl, func(ctx context.Context, l *store.Lease) error { return do(ctx, l.Held) })
	}
}

func newHead(t *testing.T, b host, m *cluster.Member) *head {
	t.Helper()
	return newHeadWithLog(t, b, m, io.Discard)
}

func newHeadWithLog(t *testing.T, b host, m *cluster.Member, log io.Writer) *head {
	t.Helper()
	h := &head{store: store.New(m.Client(), store.Options{Cipher: storetest.Cipher()})}
	if err := h.store.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var ended sync.WaitGroup
	b.inside(t, func() (err error) {
		h.VIP, err = New(Config{Address: shared, Interface: "eth0", WithLease: leaseOf(h.store),
			Log: slog.New(slog.NewTextHandler(log, nil))})
		if err != nil {
			return err
		}
		l, err := net.Listen("tcp", ":80")
		if err != nil {
			return err
		}
		context.AfterFunc(ctx, func() { l.Close() })
		ended.Go(func() {
			for conn, err := l.Accept(); err == nil; conn, err = l.Accept() {
				_, _ = io.WriteString(conn, string(b))
				conn.Close()
			}
		})
		return nil
	})
	ended.Go(func() { h.Run(ctx) })
	h.stop = sync.OnceFunc(func() { cancel(); ended.Wait(); h.Close(); h.store.Close() })
	t.Cleanup(h.stop)
	return h
}

// answering returns the host that answers at the shared address, as seen from the client.
func answering(t *testing.T, client host) (name string) {
	client.inside(t, func() error {
		conn, err := net.DialTimeout("tcp", shared.Addr().String()+":80", time.Second)
		if err != nil {
			return nil
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(time.Second))
		text, _ := io.ReadAll(conn)
		name = string(text)
		return nil
	})
	return name
}

// The address follows the lease: to another head when its head loses the store, and when its head ends.
func TestFailover(t *testing.T) {
	t.Parallel()
	hosts := newHosts(t)
	client := hosts[2]
	m := storetest.Member(t)
	first := newHead(t, hosts[0], m)
	until(t, "the first head answers", func() bool { return answering(t, client) == string(hosts[0]) })
	second := newHead(t, hosts[1], m)
	if second.Held() || hosts[1].has(t) {
		t.Error("two heads have the address")
	}

	first.store.Close() // it runs, and cannot write
	at := time.Now()
	until(t, "the client has the new MAC of the address", func() bool {
		return strings.Contains(run(t, "ip -n %s neighbor show %s", client, shared.Addr()), hosts[1].mac(t))
	})
	if first.Held() || hosts[0].has(t) {
		t.Error("two heads have the address")
	}
	t.Logf("moved after %s", time.Since(at).Round(time.Millisecond))
	until(t, "the second head answers", func() bool { return answering(t, client) == string(hosts[1]) })

	first.stop()
	third := newHead(t, hosts[0], m)
	second.stop()
	if hosts[1].has(t) {
		t.Error("a head that has ended has the address")
	}
	until(t, "the third head answers", func() bool { return answering(t, client) == string(hosts[0]) && third.Held() })
}

func TestBadAddresses(t *testing.T) {
	for text, valid := range map[string]bool{
		"10.0.0.9/24": true, "10.0.0.9/32": true, "10.0.0.0/24": false, "10.0.0.255/24": false, "10.0.3.255/22": false,
		"10.0.0.255/22": true, "10.0.0.0/31": true, "255.255.255.255/32": false, "127.0.0.1/8": false,
		"224.0.0.1/24": false,
		"fe80::1/64":   false, "0.0.0.0/0": false, "2001:db8::1/64": false,
	} {
		if err := Check(netip.MustParsePrefix(text)); (err == nil) != valid || err != nil &&
			!errors.Is(err, trivet.ErrInvalid) {
			t.Errorf("%s: %v", text, err)
		}
	}
	_, err := New(Config{Address: shared, Interface: "nothing0", Log: slog.New(slog.DiscardHandler)})
	if !errors.Is(err, trivet.ErrNotFound) || !strings.Contains(err.Error(), "--vip-interface") {
		t.Error(err)
	}
	_, err = New(Config{Address: netip.MustParsePrefix("10.98.0.9/24"), Interface: "lo",
		Log: slog.New(slog.DiscardHandler)})
	if !errors.Is(err, trivet.ErrInvalid) {
		t.Error(err)
	}
}
