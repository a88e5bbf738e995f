package api_test

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

func network(name, cidr string) *trivet.Network {
	return &trivet.Network{Meta: trivet.Meta{Name: name}, Spec: trivet.NetworkSpec{CIDR: netip.MustParsePrefix(cidr)}}
}

// The number of networks is not limited by what one transaction can compare.
func TestManyNetworks(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	networks := client.Of[trivet.Network](h.client(h.admin))
	var writers errgroup.Group
	writers.SetLimit(8)
	for i := range 250 {
		writers.Go(func() error {
			_, err := networks.Create(t.Context(), network(fmt.Sprint("n", i), fmt.Sprintf("10.1.%d.0/24", i)))
			return err
		})
	}
	if err := writers.Wait(); err != nil {
		t.Fatal(err)
	}
	for name, cidr := range map[string]string{"enclosing": "10.0.0.0/8", "within": "10.1.77.128/25", "same": "10.1.3.0/24",
		"all": "0.0.0.0/0"} {
		if _, err := networks.Create(t.Context(), network(name, cidr)); !errors.Is(err, trivet.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := networks.Update(t.Context(), network("n7", "10.2.0.0/16")); err != nil {
		t.Errorf("to a free subnet: %v", err)
	}
	if _, err := networks.Create(t.Context(), network("after", "10.1.7.0/25")); err != nil {
		t.Errorf("in the subnet that the network had before: %v", err)
	}
}

// Of two networks that overlap and are created at once through two heads, one is refused, whichever encloses the
// other.
func TestOverlapOfConcurrentNetworks(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	heads := []client.Records[trivet.Network, *trivet.Network]{client.Of[trivet.Network](h.client(h.admin)),
		client.Of[trivet.Network](h.twin().client(h.admin))}
	var accepted atomic.Int64
	for i := range 30 {
		var pair sync.WaitGroup
		for at, cidr := range []string{fmt.Sprintf("10.%d.0.0/16", i), fmt.Sprintf("10.%d.%d.0/24", i, i)} {
			pair.Go(func() {
				_, err := heads[(at+i)%2].Create(t.Context(), network(fmt.Sprintf("n%d-%d", i, at), cidr))
				if err == nil {
					accepted.Add(1)
				} else if !errors.Is(err, trivet.ErrInvalid) {
					t.Error(err)
				}
			})
		}
		pair.Wait()
	}
	if accepted.Load() != 30 {
		t.Errorf("of 30 overlapping pairs %d networks were accepted", accepted.Load())
	}
}

// A fixed address is of one machine, whichever head two are created at.
func TestFixedAddressIsOfOneMachine(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	heads := []*head{h, h.twin()}
	with := func(name string, mac int, addresses ...string) *trivet.Machine {
		m := machine(name)
		for i, a := range addresses {
			nic := trivet.NIC{MAC: fmt.Sprintf("52:54:00:00:%02x:%02x", mac, i)}
			if a != "" {
				nic.Address = netip.MustParseAddr(a)
			}
			m.Spec.NICs = append(m.Spec.NICs, nic)
		}
		return m
	}
	const addresses = 20
	var created atomic.Int64
	var writers errgroup.Group
	for i := range addresses {
		for j, at := range heads {
			writers.Go(func() error {
				name, address := fmt.Sprintf("m%d-%d", i, j), fmt.Sprint("10.0.0.", 10+i)
				_, err := client.Of[trivet.Machine](at.client(at.admin)).Create(t.Context(), with(name, 2*i+j, "", address))
				if err == nil {
					created.Add(1)
				} else if !errors.Is(err, trivet.ErrExists) {
					return err
				}
				return nil
			})
		}
	}
	if err := writers.Wait(); err != nil {
		t.Fatal(err)
	}
	if n := created.Load(); n != addresses {
		t.Errorf("%d machines were created with %d addresses", n, addresses)
	}
	machines := client.Of[trivet.Machine](h.client(h.admin))
	for what, c := range map[string]struct {
		addresses []string
		want      error
	}{
		"twice in a machine": {[]string{"10.0.1.1", "10.0.1.1"}, trivet.ErrInvalid},
		"in another form":    {[]string{"::ffff:10.0.0.10"}, trivet.ErrInvalid},
		"of another machine": {[]string{"10.0.1.1", "10.0.0.10"}, trivet.ErrExists},
	} {
		if _, err := machines.Create(t.Context(), with("bad", 200, c.addresses...)); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", what, err, c.want)
		}
	}
	last, err := machines.Create(t.Context(), with("last", 201, "10.0.1.1"))
	if err != nil {
		t.Fatal(err)
	}
	last.Labels = map[string]string{"a": "b"}
	if last, err = machines.Update(t.Context(), last); err != nil {
		t.Errorf("a change of something else: %v", err)
	}
	last.Spec.NICs[0].Address = netip.MustParseAddr("10.0.0.10")
	if _, err := machines.Update(t.Context(), last); !errors.Is(err, trivet.ErrExists) {
		t.Errorf("a change to the address of another machine: %v", err)
	}
	if err := machines.Delete(t.Context(), "last"); err != nil {
		t.Fatal(err)
	}
	if _, err := machines.Create(t.Context(), with("next", 202, "10.0.1.1")); err != nil {
		t.Errorf("an address of a deleted machine: %v", err)
	}
}

// An address of an interface is of one machine, has the prefix of its network, and is not leased to another machine.
func TestAddressesOfInterfaces(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	admin := h.client(h.admin)
	storage := network("storage", "10.20.0.0/24")
	storage.Spec.Gateway = netip.MustParseAddr("10.20.0.1")
	if _, err := client.Of[trivet.Network](admin).Create(t.Context(), storage); err != nil {
		t.Fatal(err)
	}
	put(h, h.fleet.Sites, &trivet.Site{Meta: trivet.Meta{Kind: "Site", Name: trivet.SiteName},
		Status: trivet.SiteStatus{ClusterVersion: trivet.CurrentRelease}})
	put(h, h.fleet.Addresses, &trivet.Address{Meta: trivet.Meta{Kind: "Address", Name: "10.20.0.50"},
		Spec: trivet.AddressSpec{Network: "storage", MAC: macA, Machine: "other", MachineUID: "u"}})
	put(h, h.fleet.Addresses, &trivet.Address{Meta: trivet.Meta{Kind: "Address", Name: "10.20.0.51"},
		Spec:   trivet.AddressSpec{Network: "storage", MAC: macA},
		Status: trivet.AddressStatus{Until: time.Now().Add(time.Hour)}})
	put(h, h.fleet.Addresses, &trivet.Address{Meta: trivet.Meta{Kind: "Address", Name: "10.20.0.52"},
		Spec: trivet.AddressSpec{Network: "storage", Provision: "default/web1", ProvisionUID: "u"}})
	put(h, h.fleet.Addresses, &trivet.Address{Meta: trivet.Meta{Kind: "Address", Name: "10.20.0.53"},
		Spec:   trivet.AddressSpec{Network: "storage", MAC: macA},
		Status: trivet.AddressStatus{Until: time.Now().Add(-time.Hour)}})
	with := func(name, mac string, addresses ...string) *trivet.Machine {
		m := machine(name, mac)
		lan := trivet.Interface{Name: "lan0", MAC: mac}
		for _, a := range addresses {
			lan.Addresses = append(lan.Addresses, netip.MustParsePrefix(a))
		}
		m.Spec.Interfaces = []trivet.Interface{lan}
		return m
	}
	machines := client.Of[trivet.Machine](admin)
	m1, err := machines.Create(t.Context(), with("m1", macB, "10.20.0.11/24", "192.168.1.1/16", "10.20.0.53/24"))
	if err != nil {
		t.Fatal(err)
	}
	port := func(name, mac, address string) *trivet.Machine {
		m := machine(name, mac)
		m.Spec.NICs[0].Address = netip.MustParseAddr(address)
		return m
	}
	for what, c := range map[string]struct {
		machine *trivet.Machine
		want    string
	}{
		"of another machine": {with("m2", macC, "10.20.0.12/24", "10.20.0.11/24"),
			"spec.interfaces[0].addresses[1] 10.20.0.11 belongs to machine m1"},
		"of another one's interface": {port("m2", macC, "10.20.0.11"),
			"spec.nics[0].address 10.20.0.11 belongs to machine m1"},
		"of a port, leased": {port("m2", macC, "10.20.0.50"),
			"spec.nics[0].address 10.20.0.50 is leased to machine other"},
		"of a port, leased to a client": {port("m2", macC, "10.20.0.51"),
			"10.20.0.51 is leased to the client with MAC " + macA},
		"leased": {with("m2", macC, "10.20.0.50/24"), "10.20.0.50 is leased to machine other"},
		"leased to a client": {with("m2", macC, "10.20.0.51/24"),
			"10.20.0.51 is leased to the client with MAC " + macA},
		"held": {with("m2", macC, "10.20.0.52/24"), "10.20.0.52 is held for provision web1"},
		"another prefix": {with("m2", macC, "10.20.0.12/16"),
			"is in network storage, which is 10.20.0.0/24; write 10.20.0.12/24"},
		"the gateway": {with("m2", macC, "10.20.0.1/24"), "is the gateway or a server of network storage"},
	} {
		if _, err := machines.Create(t.Context(), c.machine); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", what, err, c.want)
		}
	}
	if _, err := machines.Create(t.Context(), port("m3", macA, "10.20.0.51")); err != nil {
		t.Errorf("the address that it has already: %v", err)
	}
	m1.Spec.Rack = "r1"
	if _, err := machines.Update(t.Context(), m1); err != nil {
		t.Errorf("a change of something else: %v", err)
	}
	if err := machines.Delete(t.Context(), "m1"); err != nil {
		t.Fatal(err)
	}
	if _, err := machines.Create(t.Context(), with("m2", macC, "10.20.0.11/24")); err != nil {
		t.Errorf("an address of a deleted machine: %v", err)
	}
}
