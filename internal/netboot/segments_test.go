package netboot_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/dhcp"
	"github.com/trivet-project/trivet/internal/netboot"
	"github.com/trivet-project/trivet/internal/store"
)

// Of a segment without a Network, its address and its last clients are known until there is one. What is remembered is
// bounded, and a client's own address names no segment.
func TestSegmentsWithoutNetwork(t *testing.T) {
	r := newFixture(t)
	r.open(t, netboot.Config{Registry: prometheus.NewRegistry()})
	ask := func(segment, mac string) {
		t.Helper()
		q := packet(t, dhcp.Discover, mac, biosPXE...)
		q.Local = ip(segment)
		if reply := r.ServeDHCP(t.Context(), q); reply != nil {
			t.Fatalf("answered %s", show(reply))
		}
	}
	for range 3 {
		ask("10.9.0.1", knownMAC)
	}
	for i := range 9 {
		ask("10.8.0.1", fmt.Sprintf("52:54:00:00:09:%02x", i))
	}
	all := r.Segments()
	if len(all) != 2 || all[0].Address != "10.8.0.1" || len(all[0].Clients) != 8 ||
		all[0].Clients[7] != "52:54:00:00:09:08" || !slices.Equal(all[1].Clients, []string{knownMAC}) {
		t.Errorf("%+v", all)
	}
	r.write(t, func(tx *store.Tx) error {
		n := lan()
		n.Name, n.Spec = "n9", trivet.NetworkSpec{CIDR: netip.MustParsePrefix("10.9.0.0/24")}
		return r.Networks.In(tx).Create(n)
	})
	if all = r.Segments(); len(all) != 1 || all[0].Address != "10.8.0.1" {
		t.Errorf("with a Network of one: %+v", all)
	}
	for i := range 100 {
		ask(fmt.Sprintf("10.7.%d.1", i), knownMAC)
	}
	if n := len(r.Segments()); n < 60 || n > 64 {
		t.Errorf("%d segments are remembered", n)
	}
}
