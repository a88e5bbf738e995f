package addressing_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/addressing"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/storetest"
)

const (
	knownMAC   = "52:54:00:00:00:01"
	fixedMAC   = "52:54:00:00:00:02"
	unknownMAC = "52:54:00:00:00:99"
)

// fixture is Leases over a real store, with one network, a machine m1 and a machine m2 with a fixed address.
type fixture struct {
	*state.Tables
	*addressing.Leases
}

func newFixture(t *testing.T, c addressing.Config) *fixture {
	t.Helper()
	c.Tables = storetest.New(t, state.New)
	return fixtureOn(t, c)
}

// fixtureOn is newFixture over a store of the caller's.
func fixtureOn(t *testing.T, c addressing.Config) *fixture {
	t.Helper()
	f := &fixture{c.Tables, addressing.New(c)}
	_, err := f.Store.Update(t.Context(), func(tx *store.Tx) error {
		return errors.Join(
			f.Tables.Networks.In(tx).Create(&trivet.Network{Meta: trivet.Meta{Name: "lan"}, Spec: trivet.NetworkSpec{
				CIDR: netip.MustParsePrefix("10.0.0.0/24"), Lease: trivet.Duration(time.Hour),
				Ranges: []trivet.Range{span("10.0.0.100", "10.0.0.101", "known"),
					span("10.0.0.150", "10.0.0.169", "discovery")},
			}}),
			f.Machines.In(tx).Create(machine("m1", trivet.NIC{MAC: knownMAC})),
			f.Machines.In(tx).Create(machine("m2", trivet.NIC{MAC: fixedMAC, Address: ip("10.0.0.20")})),
		)
	})
	must(t, err)
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = f.Run(ctx) })
	t.Cleanup(func() { stop(); running.Wait() })
	return f
}

// request is a request of a port on the network.
func (f *fixture) request(t *testing.T, mac string) *addressing.Request {
	t.Helper()
	r := &addressing.Request{MAC: mac, Network: f.Network(ip("10.0.0.1")), Server: ip("10.0.0.1")}
	if r.Network == nil {
		t.Fatal("no network contains 10.0.0.1")
	}
	if all := f.Machines.SharedBy(state.ByMAC, mac); len(all) > 0 {
		r.Machine = all[0]
	}
	return r
}

// bind offers an address to a port and binds it.
func (f *fixture) bind(t *testing.T, mac string) netip.Addr {
	t.Helper()
	r := f.request(t, mac)
	a, err := f.Offer(r)
	must(t, err)
	want := time.Hour
	if r.Machine == nil {
		want = 10 * time.Minute
	}
	if lease, err := f.Bind(t.Context(), r, a); err != nil || lease != want {
		t.Fatalf("bind %s to %s: %s, %v", a, mac, lease, err)
	}
	return a
}

func TestBindWritesTheRecord(t *testing.T) {
	t.Parallel()
	f := newFixture(t, addressing.Config{})
	known, unknown := f.bind(t, knownMAC), f.bind(t, unknownMAC)
	a, err := f.Addresses.Get(known.String())
	must(t, err)
	m, err := f.Machines.Get("m1")
	must(t, err)
	want := trivet.AddressSpec{Network: "lan", MAC: knownMAC, Machine: "m1", MachineUID: m.UID}
	if a.Spec != want || a.Status.Lasts != 0 {
		t.Errorf("known machine: %+v", a)
	}
	a, err = f.Addresses.Get(unknown.String())
	must(t, err)
	if a.Spec.Machine != "" || a.Status.Lasts.D() != 20*time.Minute {
		t.Errorf("unknown machine: %+v", a)
	}
	before := f.Store.Revision()
	if again := f.bind(t, knownMAC); again != known {
		t.Errorf("the known machine has %s, then %s", known, again)
	}
	if again := f.bind(t, unknownMAC); again != unknown || f.Store.Revision() != before {
		t.Errorf("the unknown machine has %s, then %s, by %d writes", unknown, again, f.Store.Revision()-before)
	}
}

func TestFixedAddress(t *testing.T) {
	t.Parallel()
	f := newFixture(t, addressing.Config{})
	if a := f.bind(t, fixedMAC); a != ip("10.0.0.20") {
		t.Errorf("offered %s", a)
	}
	if _, err := f.Bind(t.Context(), f.request(t, fixedMAC), ip("10.0.0.100")); !errors.Is(err, addressing.ErrRefused) {
		t.Errorf("another address: %v", err)
	}
	if mac := f.Holder(ip("10.0.0.20")); mac != fixedMAC {
		t.Errorf("the holder is %q", mac)
	}
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if a, err := f.Addresses.Get("10.0.0.20"); err == nil && a.Spec.Fixed && a.Spec.Machine == "m2" {
			break
		} else if time.Now().After(end) {
			t.Fatalf("the record did not follow: %+v, %v", a, err)
		}
	}
}

// An address of a machine's interface is leased to no port, and is known to be of the machine.
func TestAddressOfAnInterface(t *testing.T) {
	t.Parallel()
	f := newFixture(t, addressing.Config{})
	m := machine("m3", trivet.NIC{MAC: "52:54:00:00:00:09"})
	m.Spec.Interfaces = []trivet.Interface{{Name: "lan0", MAC: "52:54:00:00:00:09"}, {Name: "v",
		VLAN:      &trivet.VLAN{Link: "lan0", ID: 2},
		Addresses: []netip.Prefix{netip.MustParsePrefix("10.0.0.100/24"), netip.MustParsePrefix("10.0.0.30/24")}}}
	_, err := f.Store.Update(t.Context(), func(tx *store.Tx) error {
		return f.Sites.In(tx).Create(&trivet.Site{Meta: trivet.Meta{Name: trivet.SiteName},
			Status: trivet.SiteStatus{ClusterVersion: trivet.CurrentRelease}})
	})
	must(t, err)
	_, err = f.Store.Update(t.Context(), func(tx *store.Tx) error { return f.Machines.In(tx).Create(m) })
	must(t, err)
	if a := f.bind(t, knownMAC); a != ip("10.0.0.101") {
		t.Errorf("of 10.0.0.100, an interface's, and 10.0.0.101 the port has %s", a)
	}
	if mac := f.Holder(ip("10.0.0.30")); mac != "52:54:00:00:00:09" {
		t.Errorf("the holder is %q", mac)
	}
}

func TestBindIsRefused(t *testing.T) {
	t.Parallel()
	f := newFixture(t, addressing.Config{Shared: ip("10.0.0.101")})
	other := f.bind(t, unknownMAC)
	for name, a := range map[string]netip.Addr{
		"leased to another": other,
		"not in the range":  ip("10.0.0.50"),
		"another use":       ip("10.0.0.160"),
		"shared address":    ip("10.0.0.101"),
		"other network":     ip("10.1.0.100"),
		"none":              {},
	} {
		if _, err := f.Bind(t.Context(), f.request(t, knownMAC), a); !errors.Is(err, addressing.ErrRefused) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestReleaseAndDecline(t *testing.T) {
	t.Parallel()
	f := newFixture(t, addressing.Config{})
	a := f.bind(t, unknownMAC)
	f.Release(t.Context(), f.request(t, knownMAC), a) // not the holder
	if f.Leased(a) == nil {
		t.Fatal("released by another port")
	}
	f.Release(t.Context(), f.request(t, unknownMAC), a)
	if r := f.Leased(a); r != nil {
		t.Errorf("after the release: %+v", r)
	}
	if again := f.bind(t, unknownMAC); again != a {
		t.Errorf("had %s, then %s", a, again)
	}
	f.Decline(t.Context(), f.request(t, unknownMAC), a)
	if next := f.bind(t, unknownMAC); next == a {
		t.Errorf("%s is offered after it was declined", a)
	}
	if mac := f.Holder(a); mac != "" {
		t.Errorf("%s holds the declined address", mac)
	}
}

func TestNoOfferWithoutQuorum(t *testing.T) {
	t.Parallel()
	f := newFixture(t, addressing.Config{Quorum: func() bool { return false }})
	if a, err := f.Offer(f.request(t, unknownMAC)); !errors.Is(err, trivet.ErrUnavailable) {
		t.Errorf("offered %s, %v", a, err)
	}
	if a, err := f.Offer(f.request(t, fixedMAC)); err != nil || a != ip("10.0.0.20") {
		t.Errorf("fixed: %s, %v", a, err)
	}
}

// A machine that is a head gets its own address when it boots, also while there is no quorum without it; no other one
// gets that address.
func TestAddressOfAMachineThatIsAHead(t *testing.T) {
	t.Parallel()
	var cut atomic.Bool
	f := newFixture(t, addressing.Config{Quorum: func() bool { return !cut.Load() }})
	own := f.bind(t, knownMAC)
	m, err := f.Machines.Get("m1")
	must(t, err)
	other := machine("m3", trivet.NIC{MAC: "52:54:00:00:00:03"})
	head := &trivet.Head{Meta: trivet.Meta{Name: "head1"}, Status: trivet.HeadStatus{State: trivet.HeadMember,
		Machine: "m1", MachineUID: m.UID, API: []string{"https://" + own.String() + ":7480"}, DHCP: []netip.Addr{own}}}
	site := &trivet.Site{Meta: trivet.Meta{Name: trivet.SiteName},
		Status: trivet.SiteStatus{ClusterVersion: trivet.CurrentRelease}}
	_, err = f.Store.Update(t.Context(), func(tx *store.Tx) error {
		return errors.Join(f.Sites.In(tx).Put(site), f.Heads.In(tx).Create(head), f.Machines.In(tx).Create(other))
	})
	must(t, err)
	if again := f.bind(t, knownMAC); again != own {
		t.Errorf("the machine has %s, then %s", own, again)
	}
	cut.Store(true)
	if a, err := f.Offer(f.request(t, knownMAC)); err != nil || a != own {
		t.Errorf("without a quorum: %s, %v; want %s", a, err, own)
	}
	cut.Store(false)
	if a := f.bind(t, "52:54:00:00:00:03"); a == own {
		t.Errorf("another machine has the address of the head")
	}
	_, err = f.Store.Update(t.Context(), func(tx *store.Tx) error { return f.Addresses.In(tx).Delete(own.String()) })
	must(t, err)
	r := f.request(t, "52:54:00:00:00:03")
	if _, err := f.Bind(t.Context(), r, own); !errors.Is(err, addressing.ErrRefused) {
		t.Errorf("another machine asks for the address of the head: %v", err)
	}
}

// Ports that ask at once are offered different addresses, before any of them is bound.
func TestOffersDiffer(t *testing.T) {
	t.Parallel()
	f := newFixture(t, addressing.Config{})
	offered := map[netip.Addr]string{}
	for i := range 20 {
		mac := fmt.Sprintf("52:54:00:00:01:%02x", i)
		a, err := f.Offer(f.request(t, mac))
		must(t, err)
		if other := offered[a]; other != "" {
			t.Errorf("%s is offered to %s and %s", a, other, mac)
		}
		offered[a] = mac
	}
	if a, err := f.Offer(f.request(t, unknownMAC)); err == nil {
		t.Errorf("all addresses are offered, but %s is offered again", a)
	}
	for a, mac := range offered {
		f.Withdraw(a, mac)
		break
	}
	time.Sleep(2 * time.Second) // a full network is not searched for that long
	if _, err := f.Offer(f.request(t, unknownMAC)); err != nil {
		t.Errorf("after an offer was withdrawn: %v", err)
	}
}

func span(from, to, use string) trivet.Range {
	return trivet.Range{From: ip(from), To: ip(to), Use: use}
}

func machine(name string, nics ...trivet.NIC) *trivet.Machine {
	return &trivet.Machine{Meta: trivet.Meta{Name: name}, Spec: trivet.MachineSpec{NICs: nics},
		Status: trivet.MachineStatus{State: trivet.MachineAvailable}}
}

func ip(addr string) netip.Addr { return netip.MustParseAddr(addr) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
