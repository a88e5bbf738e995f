package api_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

// A machine may have many ports, each with a fixed address in a network of its own: a transaction has few reads for
// each.
func TestManyPortsWithAddresses(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	c := h.client(h.admin)
	m := machine("m1", macA)
	m.Spec.NICs = nil
	for i := range 12 {
		n := &trivet.Network{Meta: trivet.Meta{Name: fmt.Sprint("n", i)},
			Spec: trivet.NetworkSpec{CIDR: netip.MustParsePrefix(fmt.Sprintf("10.%d.%d.0/24", i*16, i))}}
		must(client.Of[trivet.Network](c).Create(t.Context(), n))(t)
		m.Spec.NICs = append(m.Spec.NICs, trivet.NIC{MAC: fmt.Sprintf("52:54:00:00:01:%02x", i),
			Address: netip.MustParseAddr(fmt.Sprintf("10.%d.%d.9", i*16, i))})
	}
	must(client.Of[trivet.Machine](c).Create(t.Context(), m))(t)
}
