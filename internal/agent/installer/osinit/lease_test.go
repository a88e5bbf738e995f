package osinit

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/trivet-project/trivet/internal/dhcp"
)

func TestLeaseOf(t *testing.T) {
	addr, prefix := netip.MustParseAddr, netip.MustParsePrefix
	got, err := leaseOf(&dhcp.Lease{
		Address: prefix("10.0.0.9/32"), Server: addr("10.0.0.1"), MTU: 100, Time: time.Second, Domain: "a b",
		Routers: []netip.Addr{addr("224.0.0.1"), addr("10.0.0.254")},
		DNS:     []netip.Addr{addr("10.0.0.2"), addr("10.0.0.2"), addr("127.0.0.1")},
		Routes:  []dhcp.Route{{To: prefix("10.1.0.0/16"), Gateway: addr("10.0.0.3")}, {To: prefix("10.2.0.0/16")}},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := Lease{
		Address: prefix("10.0.0.9/24"), Server: addr("10.0.0.1"), Gateway: addr("10.0.0.254"), Lasts: shortestLease,
		DNS:    []netip.Addr{addr("10.0.0.2")},
		Routes: []Route{{To: prefix("10.1.0.0/16"), Gateway: addr("10.0.0.3")}, {To: prefix("10.2.0.0/16")}},
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})); diff != "" {
		t.Error(diff)
	}
	for _, bad := range []netip.Prefix{{}, prefix("224.0.0.1/24"), prefix("127.0.0.1/8")} {
		if l, err := leaseOf(&dhcp.Lease{Address: bad}); err == nil {
			t.Errorf("%s is accepted: %+v", bad, l)
		}
	}
}

// The address of the older lease is removed with the next valid one, so it must be known then.
func TestInvalidRenewalKeepsTheLease(t *testing.T) {
	first := &dhcp.Lease{Address: netip.MustParsePrefix("10.0.0.9/24")}
	p := &port{lease: first, Lease: Lease{Address: first.Address}}
	if err := p.apply(&dhcp.Lease{}); err == nil || p.lease != first || p.Address != first.Address {
		t.Errorf("lease %+v of %s, error %v", p.lease, p.Address, err)
	}
}
