package netboot_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/trivet-project/trivet/internal/dhcp"
	"github.com/trivet-project/trivet/internal/lab/vm"
	"github.com/trivet-project/trivet/internal/netboot"
	"github.com/trivet-project/trivet/internal/tftp"
)

// namespace is a head's network namespace with a cable to the switch.
type namespace struct{ network, name string }

func newNamespace(t *testing.T, network, name, addr string) *namespace {
	t.Helper()
	b := &namespace{network, network + "-" + name}
	remove := func() { _ = exec.Command("ip", "netns", "delete", b.name).Run() }
	remove() // of a test that was killed
	t.Cleanup(remove)
	for _, line := range []string{
		"netns add " + b.name,
		"-n " + network + " link add " + name + " type veth peer name eth0 netns " + b.name,
		"-n " + network + " link set " + name + " master lab0 up",
		"-n " + b.name + " link set eth0 up",
		"-n " + b.name + " link set lo up",
	} {
		ipCommand(t, line)
	}
	if addr != "" {
		ipCommand(t, "-n "+b.name+" address add "+addr+" dev eth0")
	}
	return b
}

func ipCommand(t *testing.T, line string) {
	t.Helper()
	if out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
		t.Fatalf("ip %s: %v: %s", line, err, out)
	}
}

// cut disconnects the cable: no other host is notified that the head is gone.
func (b *namespace) cut(t *testing.T) {
	ipCommand(t, "-n "+b.network+" link set "+strings.TrimPrefix(b.name, b.network+"-")+" nomaster")
}

// inside runs a function on a thread of the namespace: sockets that it opens stay there.
func (b *namespace) inside(t *testing.T, do func() error) {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		f, err := os.Open("/run/netns/" + b.name)
		if err == nil {
			defer f.Close()
			err = unix.Setns(int(f.Fd()), unix.CLONE_NEWNET)
		}
		if err == nil {
			err = do()
		}
		done <- err
	}()
	must(t, <-done)
}

// serveIn runs the listeners of a server there, on the ports that firmware uses, until the test ends. answer is the
// server, or a handler in front of it.
func (s *site) serveIn(t *testing.T, b *namespace, d *netboot.Server, answer dhcp.Handler) {
	t.Helper()
	b.inside(t, func() error {
		server, err := dhcp.Listen(dhcp.Config{Handler: answer, Interfaces: []string{"eth0"}, Proxy: true})
		if err != nil {
			return err
		}
		s.until(t, server.Serve)
		conn, err := net.ListenUDP("udp", &net.UDPAddr{Port: 69})
		if err != nil {
			return err
		}
		s.until(t, func(ctx context.Context) error { return (&tftp.Server{Open: d.OpenTFTP}).Serve(ctx, conn) })
		l, err := net.Listen("tcp", ":8080")
		if err != nil {
			return err
		}
		web := d.HTTPServer()
		s.until(t, func(ctx context.Context) error {
			defer context.AfterFunc(ctx, func() { web.Close() })()
			return web.Serve(l)
		})
		return nil
	})
}

// newSwitch returns a network with namespaces for two heads.
func newSwitch(t *testing.T) (*vm.Network, []*namespace) {
	t.Helper()
	lab, err := vm.NewNetwork(t.Context(), "netboot-cut", netip.MustParsePrefix("10.0.0.250/24"))
	if err != nil {
		t.Fatalf("%v (as root; %s)", err, vm.Packages)
	}
	t.Cleanup(func() { _ = lab.Close() })
	var namespaces []*namespace
	for i := range 2 {
		namespaces = append(namespaces, newNamespace(t, lab.Name(), fmt.Sprintf("head%d", i),
			fmt.Sprintf("10.0.0.%d/24 brd +", i+1)))
	}
	return lab, namespaces
}
