package cluster

import (
	"fmt"
	"maps"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"sync"
)

// The network of a site: heads, racks, and the test itself, which is connected to the switch.
var (
	subnet   = netip.MustParsePrefix("10.99.0.0/16")
	operator = netip.MustParseAddr("10.99.0.1")
)

// fabric is a switch with ports. A port is a network namespace with one interface.
type fabric struct {
	mu    sync.Mutex
	ports []string       // guarded by mu, like all that follows
	cuts  map[cut]bool   // from a port to another: nothing passes
	loss  map[string]int // percent of what a port sends that is lost
}

// cut is a direction in which nothing passes.
type cut struct{ from, to string }

const switchName = "switch"

func newFabric() (*fabric, error) {
	f := &fabric{cuts: map[cut]bool{}, loss: map[string]int{}}
	for _, args := range []string{
		"link add " + switchName + " type bridge forward_delay 0 mcast_snooping 0",
		"address add " + netip.PrefixFrom(operator, subnet.Bits()).String() + " dev " + switchName,
		"link set " + switchName + " up",
	} {
		if err := ip(strings.Fields(args)...); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// plug creates a port with an address.
func (f *fabric) plug(name string, address netip.Addr) error {
	for _, args := range []string{
		"netns add " + name,
		"link add " + name + " type veth peer name eth0 netns " + name,
		"link set " + name + " master " + switchName + " up",
		"-n " + name + " link set lo up",
		"-n " + name + " address add " + netip.PrefixFrom(address, subnet.Bits()).String() + " brd + dev eth0",
		"-n " + name + " link set eth0 up",
	} {
		if err := ip(strings.Fields(args)...); err != nil {
			return err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ports = append(f.ports, name)
	return nil
}

// has reports whether there is a port of a name.
func (f *fabric) has(name string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Contains(f.ports, name)
}

// unplug removes all ports and the switch.
func (f *fabric) unplug() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, name := range f.ports {
		_ = ip("link", "delete", name) // the kernel would, later
		_ = ip("netns", "delete", name)
	}
	_ = ip("link", "delete", switchName)
	_ = nft("delete table bridge faults")
}

// isolate cuts the ports of a group off all other ports, in both directions.
func (f *fabric) isolate(group ...string) error {
	return f.change(func() {
		for _, p := range f.ports {
			for _, q := range group {
				if !slices.Contains(group, p) {
					f.cuts[cut{p, q}], f.cuts[cut{q, p}] = true, true
				}
			}
		}
	})
}

// block drops all that some ports send to others.
func (f *fabric) block(from, to []string) error {
	return f.change(func() {
		for _, p := range from {
			for _, q := range to {
				f.cuts[cut{p, q}] = true
			}
		}
	})
}

// lose drops a percentage of the frames that a port sends.
func (f *fabric) lose(port string, percent int) error {
	return f.change(func() { f.loss[port] = percent })
}

// heal removes all faults.
func (f *fabric) heal() error {
	return f.change(func() { clear(f.cuts); clear(f.loss) })
}

func (f *fabric) change(do func()) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	do()
	return nft(f.rules())
}

// rules returns all of the switch's rules, which replace the former ones at once. What is dropped at a switch leaves
// no trace at either end, like a cut cable. f.mu is held.
func (f *fabric) rules() string {
	var b strings.Builder
	b.WriteString("table bridge faults\ndelete table bridge faults\ntable bridge faults {\n")
	b.WriteString("chain pass { type filter hook forward priority 0;\n")
	byName := func(x, y cut) int { return strings.Compare(x.from+" "+x.to, y.from+" "+y.to) }
	for _, c := range slices.SortedFunc(maps.Keys(f.cuts), byName) {
		fmt.Fprintf(&b, "iifname %q oifname %q drop\n", c.from, c.to)
	}
	var lossy strings.Builder
	for _, port := range slices.Sorted(maps.Keys(f.loss)) {
		fmt.Fprintf(&lossy, "iifname %q numgen random mod 100 < %d drop\n", port, f.loss[port])
	}
	b.WriteString(lossy.String() + "}\nchain local { type filter hook input priority 0;\n" + lossy.String() + "}\n}\n")
	return b.String()
}

func nft(rules string) error {
	cmd := exec.Command("nft", "-f", "-")
	cmd.Stdin = strings.NewReader(rules)
	return run(cmd)
}

func ip(args ...string) error { return run(exec.Command("ip", args...)) }

// run runs a command; its error has the command's output.
func run(cmd *exec.Cmd) error {
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s (%s)", cmd, err, strings.TrimSpace(string(out)), packages)
	}
	return nil
}
