package e2e_test

import (
	"fmt"
	"net/netip"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trivet-project/trivet/internal/lab/vm"
	"github.com/trivet-project/trivet/internal/testhead"
)

// Another server assigns the addresses, and Trivet only adds the boot file: real firmware combines both answers.
func TestProxyDHCP(t *testing.T) {
	t.Parallel()
	s := newBareSite(t, "e2e-proxy", headAddress, "--dhcp", "lab0")
	s.apply(`
kind: Network
name: rack
spec: {cidr: 10.77.0.0/24, dhcp: proxy}
`)
	other := s.network("e2e-proxy-dhcp", "10.77.0.2")
	s.connect("cable", s.net, other, "")
	s.dnsmasq(other, "--dhcp-range=10.77.0.50,10.77.0.60,1h")
	for mac, firmware := range map[string]vm.Firmware{
		"52:54:00:77:00:05": vm.BIOS, "52:54:00:77:00:06": vm.UEFIPXE, "52:54:00:77:00:07": vm.UEFIHTTP,
	} {
		b := s.plugIn(string(firmware), mac, firmware)
		b.powerOn()
		b.mustBeDiscovered()
		b.PowerOff()
	}
	if out, err := s.try("get", "addresses", "-o", "name"); err != nil || strings.TrimSpace(out) != "" {
		t.Errorf("Trivet assigned addresses: %s, %v", out, err)
	}
}

// Machines in another network, behind a router with a DHCP relay.
func TestRelayedMachine(t *testing.T) {
	t.Parallel()
	s := newBareSite(t, "e2e-relay", headAddress, "--dhcp-listen", headAddress+":67")
	s.apply(`
kind: Network
name: far
spec:
  cidr: 10.78.0.0/24
  gateway: 10.78.0.1
  ranges: [{from: 10.78.0.100, to: 10.78.0.199}]
`)
	far := s.network("e2e-relay-far", "10.78.0.1")
	s.connect("cable", s.net, far, "10.77.0.2/24")
	s.ip("-n", s.net.Name(), "route", "add", "10.78.0.0/24", "via", "10.77.0.2")
	forward := exec.CommandContext(s.Context(), "ip", "netns", "exec", far.Name(), "sysctl", "-qw",
		"net.ipv4.ip_forward=1")
	if out, err := forward.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	s.dnsmasq(far, "--dhcp-relay=10.78.0.1,"+headAddress)
	for mac, firmware := range map[string]vm.Firmware{"52:54:00:77:00:08": vm.BIOS, "52:54:00:77:00:09": vm.UEFIHTTP} {
		b := s.plugInto(far, nil, string(firmware), mac, firmware)
		b.powerOn()
		b.mustBeDiscovered()
		b.PowerOff()
	}
	for _, a := range strings.Fields(s.trivet("get", "addresses", "-o", "name")) {
		ip, err := netip.ParseAddr(strings.TrimPrefix(a, "address/"))
		if err != nil || !netip.MustParsePrefix("10.78.0.0/24").Contains(ip) {
			t.Errorf("a machine of the far network got %s", a)
		}
	}
}

// connect lays a cable from one network's switch to another: to its switch as well, or, with an address, to its host.
// Both ends have the cable's name.
func (s *site) connect(cable string, from, to *vm.Network, address string) {
	s.Helper()
	s.ip("-n", from.Name(), "link", "add", cable, "type", "veth", "peer", "name", cable, "netns", to.Name())
	s.ip("-n", from.Name(), "link", "set", cable, "master", "lab0", "up")
	s.ip("-n", to.Name(), "link", "set", cable, "up")
	if address != "" {
		s.ip("-n", to.Name(), "address", "add", address, "dev", cable)
	} else {
		s.ip("-n", to.Name(), "link", "set", cable, "master", "lab0")
	}
}

func (s *site) ip(args ...string) {
	s.Helper()
	if err := s.tryIP(args...); err != nil {
		s.Fatal(err)
	}
}

func (s *site) tryIP(args ...string) error {
	if out, err := exec.CommandContext(s.Context(), "ip", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}

// dnsmasq runs another DHCP server, or a relay, on a network's host.
func (s *site) dnsmasq(n *vm.Network, args ...string) {
	s.Helper()
	cmd := testhead.Command(n.Name(), "dnsmasq",
		append([]string{"--keep-in-foreground", "--conf-file=/dev/null", "--port=0", "--pid-file=", "--user=root",
			"--no-ping", "--log-facility=-", "--dhcp-leasefile=" + filepath.Join(s.T.TempDir(), "leases")}, args...)...)
	cmd.Stdout, cmd.Stderr = s.head.log, s.head.log
	p, err := testhead.Start(cmd)
	if err != nil {
		s.Fatalf("%v; try apt-get install dnsmasq-base", err)
	}
	s.Cleanup(p.Kill)
}
