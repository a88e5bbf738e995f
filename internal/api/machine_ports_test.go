package api_test

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

// A new address of a port is in a network, where there are any. A machine that had its address before the network
// changed can be changed otherwise.
func TestAddressInNoNetwork(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	ctx := t.Context()
	admin := h.client(h.admin)
	machines, networks := client.Of[trivet.Machine](admin), client.Of[trivet.Network](admin)
	m := machine("m1", macA)
	m.Spec.NICs[0].Address = netip.MustParseAddr("10.77.0.9")
	m, err := machines.Create(ctx, m)
	if err != nil {
		t.Fatalf("an address before the first network: %v", err)
	}
	if _, err := networks.Create(ctx, &trivet.Network{Meta: trivet.Meta{Name: "rack1"},
		Spec: trivet.NetworkSpec{CIDR: netip.MustParsePrefix("10.0.1.0/24")}}); err != nil {
		t.Fatal(err)
	}
	m.Labels = map[string]string{"rack": "a1"}
	if m, err = machines.Update(ctx, m); err != nil {
		t.Fatalf("a label of a machine whose address is in no network: %v", err)
	}
	m.Spec.NICs[0].Address = netip.MustParseAddr("10.77.0.10")
	if _, err := machines.Update(ctx, m); !errors.Is(err, trivet.ErrInvalid) {
		t.Errorf("another address that is in no network: %v", err)
	}
}
