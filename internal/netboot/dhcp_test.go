package netboot_test

import (
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/dhcp"
	"github.com/trivet-project/trivet/internal/store"
)

var update = flag.Bool("update", false, "rewrite the answers in testdata")

// show writes an answer for people.
func show(r *dhcp.Reply) string {
	if r == nil {
		return "silence\n"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s from %s\n", r.Type, r.Server)
	line := func(name string, value any, empty bool) {
		if !empty {
			fmt.Fprintf(&b, "  %-11s %v\n", name, value)
		}
	}
	line("address", r.Address, !r.Address.IsValid())
	line("lease", r.Lease, r.Lease == 0)
	line("class", r.Class, r.Class == dhcp.OtherClient)
	line("next server", r.NextServer, !r.NextServer.IsValid())
	line("boot file", r.BootFile, r.BootFile == "")
	for _, o := range r.Options {
		line(fmt.Sprintf("option %d", o.Code), fmt.Sprintf("%q", o.Value), false)
	}
	return b.String()
}

// The answer to each kind of client, for people to read in testdata/answers.
func TestAnswers(t *testing.T) {
	r := newFixture(t)
	r.write(t, func(tx *store.Tx) error {
		for i, mode := range []string{"proxy", "off", "ignore", "address-only"} {
			n := lan()
			n.Name, n.Spec.CIDR = mode, netip.MustParsePrefix(fmt.Sprintf("10.%d.0.0/24", i+1))
			n.Spec.Gateway, n.Spec.DNS, n.Spec.NTP = netip.Addr{}, nil, nil
			n.Spec.Ranges = []trivet.Range{span(fmt.Sprintf("10.%d.0.100", i+1), fmt.Sprintf("10.%d.0.199", i+1), "")}
			if n.Spec.DHCP = mode; i >= 2 {
				n.Spec.DHCP, n.Spec.Unknown = "", mode
			}
			if err := r.Networks.In(tx).Create(n); err != nil {
				return err
			}
		}
		return nil
	})
	on := func(q *dhcp.Packet, local string) *dhcp.Packet { q.Local = ip(local); return q }
	for name, q := range map[string]*dhcp.Packet{
		"bios":      packet(t, dhcp.Discover, knownMAC, biosPXE...),
		"uefi":      packet(t, dhcp.Discover, knownMAC, uefiPXE...),
		"uefi-http": packet(t, dhcp.Discover, knownMAC, uefiHTTP...),
		"ipxe":      packet(t, dhcp.Discover, knownMAC, ipxe...),
		"system":    packet(t, dhcp.Discover, knownMAC, system...),
		"fixed":     packet(t, dhcp.Discover, fixedMAC, uefiPXE...),
		"unknown":   packet(t, dhcp.Discover, unknownMAC, uefiPXE...),
		"inform": packet(t, dhcp.Inform, knownMAC,
			with(uefiPXE, dhcpv4.WithClientIP([]byte{10, 0, 0, 9}))...),
		"proxy":            on(packet(t, dhcp.Discover, unknownMAC, uefiPXE...), "10.1.0.1"),
		"proxy-http":       on(packet(t, dhcp.Discover, knownMAC, uefiHTTP...), "10.1.0.1"),
		"proxy-ipxe":       on(packet(t, dhcp.Discover, knownMAC, ipxe...), "10.1.0.1"),
		"proxy-system":     on(packet(t, dhcp.Discover, unknownMAC, system...), "10.1.0.1"),
		"proxy-request":    on(packet(t, dhcp.Request, knownMAC, with(uefiPXE, server("10.1.0.1"))...), "10.1.0.1"),
		"off":              on(packet(t, dhcp.Discover, knownMAC, uefiPXE...), "10.2.0.1"),
		"ignored":          on(packet(t, dhcp.Discover, unknownMAC, uefiPXE...), "10.3.0.1"),
		"not-ignored":      on(packet(t, dhcp.Discover, knownMAC, uefiPXE...), "10.3.0.1"),
		"held":             on(packet(t, dhcp.Discover, unknownMAC, uefiPXE...), "10.4.0.1"),
		"no-network":       on(packet(t, dhcp.Discover, knownMAC, uefiPXE...), "10.9.0.1"),
		"other-server":     packet(t, dhcp.Request, knownMAC, server("10.0.0.3"), wanted("10.0.0.120")),
		"wrong-address":    packet(t, dhcp.Request, knownMAC, wanted("192.168.1.9")),
		"wrong-range":      packet(t, dhcp.Request, knownMAC, wanted("10.0.0.160")),
		"wrong-than-fixed": packet(t, dhcp.Request, fixedMAC, wanted("10.0.0.120")),
		"relayed": packet(t, dhcp.Discover, knownMAC,
			with(uefiPXE, dhcpv4.WithGatewayIP([]byte{10, 4, 0, 254}))...),
		"multicast-mac": packet(t, dhcp.Discover, "53:54:00:00:00:01", uefiPXE...),
	} {
		t.Run(name, func(t *testing.T) {
			got, file := show(r.ServeDHCP(t.Context(), q)), filepath.Join("testdata", "answers", name+".txt")
			if *update {
				must(t, os.MkdirAll(filepath.Dir(file), 0o755))
				must(t, os.WriteFile(file, []byte(got), 0o644))
			}
			want, err := os.ReadFile(file)
			must(t, err)
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestProxyPortAcknowledges(t *testing.T) {
	r := newFixture(t)
	q := packet(t, dhcp.Request, knownMAC, uefiPXE...)
	q.Port, q.Unicast = dhcp.ProxyPort, true
	got := r.ServeDHCP(t.Context(), q)
	if got == nil || got.Type != dhcp.Ack || got.Address.IsValid() || got.BootFile != "snponly.efi" {
		t.Error(show(got))
	}
}

func TestMachineKeepsItsAddress(t *testing.T) {
	r := newFixture(t)
	ack := r.dora(t, knownMAC, uefiPXE...)
	if ack == nil || ack.Type != dhcp.Ack {
		t.Fatal(show(ack))
	}
	a, err := r.Addresses.Get(ack.Address.String())
	must(t, err)
	m, err := r.Machines.Get("m1")
	must(t, err)
	want := trivet.AddressSpec{Network: "lan", MAC: knownMAC, Machine: "m1", MachineUID: m.UID}
	if a.Spec != want || a.Status.Lasts != 0 {
		t.Errorf("%+v", a)
	}
	before := r.Store.Revision()
	for range 3 { // firmware, iPXE, installer: and again at the next boot
		if again := r.dora(t, knownMAC, ipxe...); again.Address != ack.Address {
			t.Errorf("then %s, now %s", ack.Address, again.Address)
		}
	}
	renewal := packet(t, dhcp.Request, knownMAC, dhcpv4.WithClientIP(ack.Address.AsSlice()))
	renewal.Unicast = true
	if again := r.ServeDHCP(t.Context(), renewal); again == nil || again.Type != dhcp.Ack || again.Lease != time.Hour {
		t.Error(show(again))
	}
	if now := r.Store.Revision(); now != before {
		t.Errorf("%d writes for a machine that has its address", now-before)
	}
}

func TestFixedAddressIsRecordedLater(t *testing.T) {
	r := newFixture(t)
	ack := r.dora(t, fixedMAC, uefiPXE...)
	if ack == nil || ack.Type != dhcp.Ack || ack.Address.String() != "10.0.0.20" {
		t.Fatal(show(ack))
	}
	a := r.address(t, "10.0.0.20", func(a *trivet.Address) bool { return a.Spec.Fixed })
	if a.Spec.MAC != fixedMAC || a.Spec.Machine != "m2" {
		t.Errorf("%+v", a)
	}
}

// An address that is fixed for one machine is assigned to no other, even if it is in a range and its machine never
// asked for it.
func TestFixedAddressIsReserved(t *testing.T) {
	r := newFixture(t)
	const fixed = "10.0.0.120"
	r.write(t, func(tx *store.Tx) error {
		return r.Machines.In(tx).Create(machine("m3", trivet.NIC{MAC: "52:54:00:00:00:03", Address: ip(fixed)}))
	})
	offer := r.ServeDHCP(t.Context(), packet(t, dhcp.Discover, knownMAC, with(uefiPXE, wanted(fixed))...))
	if offer == nil || offer.Address.String() == fixed {
		t.Fatal(show(offer))
	}
	if ack := r.ServeDHCP(t.Context(), packet(t, dhcp.Request, knownMAC,
		with(uefiPXE, wanted(fixed), server("10.0.0.1"))...)); ack != nil && ack.Type != dhcp.Nak {
		t.Error(show(ack))
	}
}

func TestUnknownMachineRenewsWithoutWrite(t *testing.T) {
	r := newFixture(t)
	ack := r.dora(t, unknownMAC, system...)
	if ack == nil || ack.Type != dhcp.Ack || ack.Lease != 10*time.Minute {
		t.Fatal(show(ack))
	}
	a, err := r.Addresses.Get(ack.Address.String())
	must(t, err)
	if a.Spec.Machine != "" || a.Status.Lasts.D() != 20*time.Minute {
		t.Errorf("%+v is leased for %s", a.Spec, a.Status.Lasts)
	}
	renew := func() *dhcp.Reply {
		q := packet(t, dhcp.Request, unknownMAC, dhcpv4.WithClientIP(ack.Address.AsSlice()))
		q.Unicast = true
		return r.ServeDHCP(t.Context(), q)
	}
	before := r.Store.Revision()
	if got := renew(); got == nil || got.Type != dhcp.Ack || r.Store.Revision() != before {
		t.Errorf("%s and %d writes", show(got), r.Store.Revision()-before)
	}
	r.write(t, func(tx *store.Tx) error { // less than a lease is left
		a, err := r.Addresses.In(tx).Get(ack.Address.String())
		must(t, err)
		a.Status.Lasts = trivet.Duration(5 * time.Minute)
		return r.Addresses.In(tx).Put(a)
	})
	if got := renew(); got == nil || got.Lease != 10*time.Minute {
		t.Error(show(got))
	}
	a, err = r.Addresses.Get(ack.Address.String())
	must(t, err)
	if a.Status.Lasts.D() != 20*time.Minute {
		t.Errorf("leased for %s", a.Status.Lasts)
	}
}

func TestReleaseAndReclaim(t *testing.T) {
	r := newFixture(t)
	r.write(t, func(tx *store.Tx) error {
		n, err := r.Networks.In(tx).Get("lan")
		must(t, err)
		n.Spec.Ranges = []trivet.Range{span("10.0.0.150", "10.0.0.150", "discovery")}
		return r.Networks.In(tx).Put(n)
	})
	first := r.dora(t, unknownMAC, system...)
	other := "52:54:00:00:00:98"
	if got := r.ServeDHCP(t.Context(), packet(t, dhcp.Discover, other)); got != nil {
		t.Errorf("the range is full, but %s", show(got))
	}
	// not its own
	r.ServeDHCP(t.Context(), packet(t, dhcp.Release, other, dhcpv4.WithClientIP(first.Address.AsSlice())))
	if a, err := r.Addresses.Get(first.Address.String()); err != nil || a.Status.Released {
		t.Errorf("released by another: %+v, %v", a, err)
	}
	r.ServeDHCP(t.Context(), packet(t, dhcp.Release, unknownMAC, dhcpv4.WithClientIP(first.Address.AsSlice())))
	r.write(t, func(tx *store.Tx) error { // forgets that the network was full
		n, err := r.Networks.In(tx).Get("lan")
		must(t, err)
		n.Spec.Domain = "changed.example.org"
		return r.Networks.In(tx).Put(n)
	})
	if got := r.dora(t, other); got == nil || got.Address != first.Address {
		t.Errorf("after the release %s", show(got))
	}
	late := packet(t, dhcp.Request, unknownMAC, addrOption(50, first.Address))
	if got := r.ServeDHCP(t.Context(), late); got == nil || got.Type != dhcp.Nak {
		t.Errorf("the first one returns: %s", show(got))
	}
}

func TestDeclinedAddressIsNotOffered(t *testing.T) {
	r := newFixture(t)
	ack := r.dora(t, knownMAC, system...)
	r.ServeDHCP(t.Context(), packet(t, dhcp.Decline, unknownMAC, addrOption(50, ack.Address))) // not its own
	r.ServeDHCP(t.Context(), packet(t, dhcp.Decline, knownMAC, addrOption(50, ack.Address), addrOption(54, head)))
	a, err := r.Addresses.Get(ack.Address.String())
	must(t, err)
	if !a.Status.Declined || a.Spec.MAC != knownMAC {
		t.Errorf("%+v", a)
	}
	next := r.dora(t, knownMAC, system...)
	if next == nil || next.Type != dhcp.Ack || next.Address == ack.Address {
		t.Errorf("declined %s, then %s", ack.Address, show(next))
	}
}

func TestUnknownMachineIsEnrolled(t *testing.T) {
	r := newFixture(t)
	r.write(t, func(tx *store.Tx) error {
		n, err := r.Networks.In(tx).Get("lan")
		must(t, err)
		n.Spec.Ranges = []trivet.Range{span("10.0.0.100", "10.0.0.199", "")}
		return r.Networks.In(tx).Put(n)
	})
	ack := r.dora(t, unknownMAC, ipxe...)
	r.write(t, func(tx *store.Tx) error { return r.Machines.In(tx).Create(machine("m9", trivet.NIC{MAC: unknownMAC})) })
	again := r.dora(t, unknownMAC, system...)
	if again == nil || again.Address != ack.Address {
		t.Fatalf("%s, then %s", ack.Address, show(again))
	}
	a := r.address(t, ack.Address.String(), func(a *trivet.Address) bool { return a.Spec.Machine == "m9" })
	if a.Status.Lasts != 0 {
		t.Errorf("its own address ends after %s", a.Status.Lasts)
	}
}

// Machines that boot together get different addresses, each with a record before it is acknowledged.
func TestManyAtOnce(t *testing.T) {
	r := newFixture(t)
	r.write(t, func(tx *store.Tx) error {
		n, err := r.Networks.In(tx).Get("lan")
		must(t, err)
		n.Spec.Ranges = []trivet.Range{span("10.0.0.130", "10.0.0.199", "")}
		return r.Networks.In(tx).Put(n)
	})
	var mu sync.Mutex
	given := map[netip.Addr]string{}
	var all sync.WaitGroup
	for i := range 70 {
		all.Go(func() {
			mac := fmt.Sprintf("52:54:00:00:01:%02x", i)
			ack := r.dora(t, mac, system...)
			for range 10 { // two were offered the last addresses: one begins again (RFC 2131 section 3.1)
				if ack == nil || ack.Type != dhcp.Nak {
					break
				}
				ack = r.dora(t, mac, system...)
			}
			mu.Lock()
			defer mu.Unlock()
			if ack == nil || ack.Type != dhcp.Ack {
				t.Errorf("%s: %s", mac, show(ack))
				return
			}
			if a, err := r.Addresses.Get(ack.Address.String()); err != nil || a.Spec.MAC != mac {
				t.Errorf("%s was acknowledged %s, whose record is %+v, %v", mac, ack.Address, a, err)
			}
			given[ack.Address] = mac
		})
	}
	all.Wait()
	if len(given) != 70 {
		t.Errorf("%d addresses for 70 machines", len(given))
	}
}

// A head that lost its store still serves the machines that it knows.
func TestWithoutQuorum(t *testing.T) {
	r := newFixture(t)
	ack := r.dora(t, knownMAC, uefiPXE...)
	unknown := r.dora(t, unknownMAC, uefiPXE...)
	r.member.Close()
	if again := r.dora(t, knownMAC, uefiPXE...); again == nil || again.Type != dhcp.Ack ||
		again.Address != ack.Address {
		t.Errorf("a known machine: %s", show(again))
	}
	if fixed := r.dora(t, fixedMAC, uefiPXE...); fixed == nil || fixed.Type != dhcp.Ack {
		t.Errorf("a machine with a fixed address: %s", show(fixed))
	}
	again := r.dora(t, unknownMAC, uefiPXE...)
	if again == nil || again.Type != dhcp.Ack || again.Address != unknown.Address {
		t.Errorf("an unknown machine within its lease: %s", show(again))
	}
	if other := r.dora(t, "52:54:00:00:00:98", uefiPXE...); other != nil {
		t.Errorf("an address that could not be written was assigned: %s", show(other))
	}
}
