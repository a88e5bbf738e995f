// Package vm runs QEMU machines with real firmware in a separate network namespace, to simulate a rack: a switch (a
// bridge), and machines with power, reset, disks and a serial console. It requires root and Debian's packages
// [Packages].
package vm

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/trivet-project/trivet"
)

// Packages is the command that installs what this package runs.
const Packages = "apt-get install qemu-system-x86 qemu-utils ovmf ipxe-qemu iproute2"

// Network is a namespace with a bridge that machines are connected to, and an address for the host.
type Network struct {
	name   string
	router *advertiser

	mu   sync.Mutex
	taps int // guarded by mu; number of ports
}

// bridge is the name of the switch in the namespace.
const bridge = "lab0"

var nameForm = regexp.MustCompile(`^[a-z][a-z0-9-]{0,31}$`)

// NewNetwork creates a namespace, and replaces one of the same name that an earlier process left. The bridge gets the
// address. The namespace is isolated from the host's networks.
func NewNetwork(ctx context.Context, name string, address netip.Prefix) (*Network, error) {
	if !nameForm.MatchString(name) || !address.IsValid() {
		return nil, fmt.Errorf("lab network %q with %s: %w", name, address, trivet.ErrInvalid)
	}
	n := &Network{name: name}
	if _, err := os.Stat(n.path()); err == nil {
		if err := n.Close(); err != nil {
			return nil, err
		}
	}
	for _, args := range [][]string{
		{"netns", "add", name},
		{"-n", name, "link", "set", "lo", "up"},
		{"-n", name, "link", "add", bridge, "type", "bridge", "forward_delay", "0", "mcast_snooping", "0"},
		{"-n", name, "address", "add", address.String(), "dev", bridge},
		{"-n", name, "link", "set", bridge, "up"},
	} {
		if err := ip(ctx, args...); err != nil {
			_ = n.Close()
			return nil, fmt.Errorf("lab network %s: %w", name, err)
		}
	}
	if err := ip(ctx, "-n", name, "address", "add", "fe80::1/64", "dev", bridge, "nodad"); err != nil {
		return n, nil // a host without IPv6: machines boot more slowly
	}
	if err := n.Do(n.advertise); err != nil {
		_ = n.Close()
		return nil, fmt.Errorf("lab network %s: %w", name, err)
	}
	return n, nil
}

func (n *Network) advertise() (err error) {
	if n.router, err = newAdvertiser(); err == nil {
		go n.router.run() // until Close
	}
	return err
}

func (n *Network) path() string { return "/run/netns/" + n.name }

// Name returns the name of the namespace, for `ip netns exec NAME`.
func (n *Network) Name() string { return n.name }

// Close removes the namespace. Its machines must be closed before.
func (n *Network) Close() error {
	if n.router != nil {
		n.router.close()
	}
	if err := ip(context.Background(), "netns", "delete", n.name); err != nil {
		return fmt.Errorf("remove lab network: %w", err)
	}
	return nil
}

// Do runs a function on a thread in the namespace: sockets that it opens, and processes that it starts, belong to the
// namespace. Other goroutines that it starts do not run in it.
func (n *Network) Do(do func() error) error {
	done := make(chan error, 1)
	go func() {
		// Never unlocked: the thread ends with the goroutine, so that no other goroutine runs in the namespace.
		runtime.LockOSThread()
		if err := n.enter(); err != nil {
			done <- err
			return
		}
		done <- do()
	}()
	return <-done
}

// enter moves this thread into the namespace.
func (n *Network) enter() error {
	f, err := os.Open(n.path())
	if err != nil {
		return fmt.Errorf("enter lab network: %w", err)
	}
	defer f.Close()
	if err := unix.Setns(int(f.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter lab network %s: %w", n.name, err)
	}
	return nil
}

// addPort creates a port of the switch and returns the name of its tap device.
func (n *Network) addPort(ctx context.Context) (tap string, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	tap = fmt.Sprintf("tap%d", n.taps)
	n.taps++
	for _, args := range [][]string{
		{"-n", n.name, "tuntap", "add", tap, "mode", "tap"},
		{"-n", n.name, "link", "set", tap, "master", bridge, "up"},
	} {
		if err := ip(ctx, args...); err != nil {
			return "", fmt.Errorf("connect a machine: %w", err)
		}
	}
	return tap, nil
}

func ip(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, "ip", args...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", cmd, err, strings.TrimSpace(string(out)))
	}
	return nil
}
