package netboot_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/addressing"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/cluster"
	"github.com/trivet-project/trivet/internal/dhcp"
	"github.com/trivet-project/trivet/internal/fleet"
	"github.com/trivet-project/trivet/internal/netboot"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/storetest"
)

const (
	knownMAC   = "52:54:00:00:00:01"
	fixedMAC   = "52:54:00:00:00:02"
	unknownMAC = "52:54:00:00:00:99"
)

var head = ip("10.0.0.1")

// fixture is a Server over a real store, with a network, a machine m1 without and a machine m2 with a fixed
// address.
type fixture struct {
	*state.Tables
	*netboot.Server
	keys   *auth.Keys
	member *cluster.Member

	mu sync.Mutex
	// guards following
	steps       []string
	requests    []string // by HTTP, in the lab
	homed       []auth.BootToken
	cloudErrors []string
	refuse      error
	// reports has one item for each reported step.
	reports chan struct{}
}

func newFixture(t testing.TB) *fixture {
	t.Helper()
	r := &fixture{reports: make(chan struct{}, 1000), member: storetest.Member(t)}
	r.Tables = storetest.On(t, r.member, store.Options{}, state.New)
	var err error
	if r.keys, err = auth.Init(t.TempDir()+"/keys", "test"); err != nil {
		t.Fatal(err)
	}
	r.write(t, func(tx *store.Tx) error {
		return errors.Join(
			r.Networks.In(tx).Create(lan()),
			r.Machines.In(tx).Create(machine("m1", trivet.NIC{MAC: knownMAC})),
			r.Machines.In(tx).Create(machine("m2", trivet.NIC{MAC: fixedMAC, Address: ip("10.0.0.20")})),
		)
	})
	r.open(t, netboot.Config{})
	return r
}

// open creates the server and runs it until the test ends.
func (r *fixture) open(t testing.TB, c netboot.Config) {
	t.Helper()
	r.Server = r.server(t, c)
}

// server creates another server and runs it until the test ends. Its head is head0 by default.
func (r *fixture) server(t testing.TB, c netboot.Config) *netboot.Server {
	t.Helper()
	c.Tables, c.Keys, c.CA, c.Head, c.Port = r.Tables, r.keys, "sha256:ca", cmp.Or(c.Head, "head0"), 8080
	c.Logger = slog.New(slog.NewTextHandler(testWriter{t}, &slog.HandlerOptions{Level: slog.LevelDebug}))
	c.Leases = addressing.New(addressing.Config{Tables: r.Tables, Shared: c.VIP.Addr(), Quorum: c.Quorum,
		Logger: c.Logger})
	c.StepReached = func(_ context.Context, machine, step string, _ int64) error { return r.note(machine + " " + step) }
	c.PhoneHome = func(_ context.Context, token auth.BootToken, cloudErrors []string) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.homed, r.cloudErrors = append(r.homed, token), append(r.cloudErrors, cloudErrors...)
		return r.refuse
	}
	c.ForeignServer = func(_ context.Context, s fleet.ForeignServer) error {
		if s.ServerMAC != "" {
			return r.note(fmt.Sprintf("%s at %s answers in %s", s.Server, s.ServerMAC, s.Network))
		}
		return r.note(fmt.Sprintf("%s accepted %s of %s in %s", s.Machine, s.Address, s.Server, s.Network))
	}
	if c.Blobs == nil {
		c.Blobs = http.NotFoundHandler()
	}
	s, err := netboot.New(c)
	must(t, err)
	r.until(t, s.Run)
	r.until(t, c.Leases.Run)
	return s
}

func (r *fixture) note(what string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.steps = append(r.steps, what)
	r.reports <- struct{}{}
	return r.refuse
}

// stepsAfter waits for n more boot steps and returns all so far.
func (r *fixture) stepsAfter(t testing.TB, n int) []string {
	t.Helper()
	for range n {
		select {
		case <-r.reports:
		case <-time.After(10 * time.Second):
			t.Fatalf("no further step; so far %q", r.steps)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.steps)
}

func (r *fixture) write(t testing.TB, do func(tx *store.Tx) error) {
	t.Helper()
	_, err := r.Store.Update(t.Context(), do)
	must(t, err)
}

// address waits until an address's record is as it should be.
func (r *fixture) address(t testing.TB, name string, ok func(*trivet.Address) bool) *trivet.Address {
	t.Helper()
	w := r.Store.Watch(0, "Address")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for {
		if a, err := r.Addresses.Get(name); err == nil && ok(a) {
			return a
		}
		if _, err := w.Next(ctx); err != nil {
			a, getErr := r.Addresses.Get(name)
			t.Fatalf("address %s is %+v (%v); %v", name, a, getErr, err)
		}
	}
}

func lan() *trivet.Network {
	return &trivet.Network{Meta: trivet.Meta{Name: "lan"}, Spec: trivet.NetworkSpec{
		CIDR: netip.MustParsePrefix("10.0.0.0/24"), Gateway: ip("10.0.0.254"),
		DNS: []netip.Addr{ip("10.0.0.53")}, NTP: []netip.Addr{ip("10.0.0.123")},
		Domain: "example.org", MTU: 1400, Lease: trivet.Duration(time.Hour),
		Ranges: []trivet.Range{span("10.0.0.100", "10.0.0.149", "known"),
			span("10.0.0.150", "10.0.0.199", "discovery")},
	}}
}

func span(from, to, use string) trivet.Range {
	return trivet.Range{From: netip.MustParseAddr(from), To: netip.MustParseAddr(to), Use: use}
}

func machine(name string, nics ...trivet.NIC) *trivet.Machine {
	return &trivet.Machine{Meta: trivet.Meta{Name: name}, Spec: trivet.MachineSpec{NICs: nics},
		Status: trivet.MachineStatus{State: trivet.MachineAvailable}}
}

// packet is a client's message as it was received on a head's interface.
func packet(t testing.TB, kind dhcp.Type, mac string, how ...dhcpv4.Modifier) *dhcp.Packet {
	t.Helper()
	r, err := dhcp.ParsePacket(raw(t, kind, mac, how...))
	must(t, err)
	r.Local, r.Port, r.Interface, r.Received = head, dhcp.ServerPort, "eth0", time.Now()
	r.From = netip.MustParseAddrPort("0.0.0.0:68")
	return r
}

// raw writes a client's message.
func raw(t testing.TB, kind dhcp.Type, mac string, how ...dhcpv4.Modifier) []byte {
	t.Helper()
	hw, err := net.ParseMAC(mac)
	must(t, err)
	how = append([]dhcpv4.Modifier{dhcpv4.WithHwAddr(hw), dhcpv4.WithMessageType(kind)}, how...)
	p, err := dhcpv4.New(how...)
	must(t, err)
	return p.ToBytes()
}

func option(code uint8, value string) dhcpv4.Modifier {
	return dhcpv4.WithOption(dhcpv4.OptGeneric(dhcpv4.GenericOptionCode(code), []byte(value)))
}

// server names the server whose offer is taken, wanted the address.
func server(addr string) dhcpv4.Modifier { return addrOption(54, ip(addr)) }
func wanted(addr string) dhcpv4.Modifier { return addrOption(50, ip(addr)) }

func addrOption(code uint8, a netip.Addr) dhcpv4.Modifier { return option(code, string(a.AsSlice())) }

func ip(addr string) netip.Addr { return netip.MustParseAddr(addr) }

// Clients, by the options of their packets.
var (
	biosPXE  = []dhcpv4.Modifier{option(60, "PXEClient:Arch:00000:UNDI:002001"), option(93, "\x00\x00")}
	uefiPXE  = []dhcpv4.Modifier{option(60, "PXEClient:Arch:00007:UNDI:003016"), option(93, "\x00\x07")}
	uefiHTTP = []dhcpv4.Modifier{option(60, "HTTPClient:Arch:00016:UNDI:003001"), option(93, "\x00\x10")}
	ipxe     = []dhcpv4.Modifier{option(60, "PXEClient:Arch:00007:UNDI:003010"), option(93, "\x00\x07"),
		option(77, "iPXE"), option(175, "\x13\x01\x01\xeb\x03\x01\x10\x00")}
	system []dhcpv4.Modifier
)

func with(base []dhcpv4.Modifier, more ...dhcpv4.Modifier) []dhcpv4.Modifier {
	return slices.Concat(base, more)
}

// dora gets an address as a client does, by two packets.
func (r *fixture) dora(t testing.TB, mac string, how ...dhcpv4.Modifier) *dhcp.Reply {
	t.Helper()
	offer := r.ServeDHCP(t.Context(), packet(t, dhcp.Discover, mac, how...))
	if offer == nil {
		t.Fatalf("no offer to %s", mac)
	}
	return r.take(t, mac, offer, how...)
}

// take requests what was offered.
func (r *fixture) take(t testing.TB, mac string, offer *dhcp.Reply, how ...dhcpv4.Modifier) *dhcp.Reply {
	t.Helper()
	how = with(how, addrOption(50, offer.Address), addrOption(54, offer.Server))
	return r.ServeDHCP(t.Context(), packet(t, dhcp.Request, mac, how...))
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(b []byte) (int, error) {
	if _, fuzzing := w.t.(*testing.F); !fuzzing { // which may not log from its target
		w.t.Log(strings.TrimSpace(string(b)))
	}
	return len(b), nil
}
