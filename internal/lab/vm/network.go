// Package vm runs QEMU machines with real firmware in a network namespace of their own, as a stand-in for a rack: a
// switch (a bridge), machines with power, reset, disks and a serial console. It needs root and Debian's packages
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

// Network is a namespace with a bridge, to which machines are plugged in and which the host has an address on.
type Network struct {
	name   string
	router *advertiser

	mu sync.Mutex
	// guards following
	taps int
}

// bridge is the switch's name inside the namespace.
const bridge = "lab0"

var nameForm = regexp.MustCompile(`^[a-z][a-z0-9-]{0,31}$`)

// NewNetwork makes a namespace of that name; one that a dead process left is replaced. The bridge gets the address. The
// namespace has no way out: nothing that machines do there is seen on the host's networks.
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
		return n, nil // a host without IPv6: machines boot later, but they do
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

// Name is the namespace's, for `ip netns exec NAME`.
func (n *Network) Name() string { return n.name }

// Close removes the namespace and all in it. Its machines must be closed before.
func (n *Network) Close() error {
	if n.router != nil {
		n.router.close()
	}
	if err := ip(context.Background(), "netns", "delete", n.name); err != nil {
		return fmt.Errorf("remove lab network: %w", err)
	}
	return nil
}

// Do runs a function on a thread inside the namespace: sockets that it opens, and processes that it starts, belong
// there and stay there. What it starts on other goroutines does not.
func (n *Network) Do(do func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine, and no other one gets into the namespace
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

// addPort makes a port on the switch and returns the name of its tap device.
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
			return "", fmt.Errorf("plug in a machine: %w", err)
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
