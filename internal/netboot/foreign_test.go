package netboot_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/dhcp"
	"github.com/trivet-project/trivet/internal/store"
)

// A DHCP server that is not a head is reported once, by the machine that accepted its offer; not where another server
// is expected, nor for the offer of a head. A client that names ever other servers is bounded.
func TestForeignServer(t *testing.T) {
	r := newFixture(t)
	r.write(t, func(tx *store.Tx) error {
		return r.Heads.In(tx).Put(&trivet.Head{Meta: trivet.Meta{Name: "head1"},
			Status: trivet.HeadStatus{DHCP: []netip.Addr{ip("10.0.0.2")}}})
	})
	accept := func(mac, address, id string) {
		t.Helper()
		r.ServeDHCP(t.Context(), packet(t, dhcp.Request, mac, wanted(address), server(id)))
	}
	accept(knownMAC, "10.0.0.100", "10.0.0.2")
	for range 3 {
		accept(knownMAC, "10.0.0.66", "10.0.0.6")
	}
	want := []string{"m1 accepted 10.0.0.66 of 10.0.0.6 in lan"}
	if diff := cmp.Diff(want, r.stepsAfter(t, 1)); diff != "" {
		t.Error(diff)
	}
	for i := range 50 {
		accept(unknownMAC, "10.0.0.67", fmt.Sprintf("10.0.7.%d", i))
	}
	r.write(t, func(tx *store.Tx) error {
		n, err := r.Networks.In(tx).Get("lan")
		must(t, err)
		n.Spec.DHCP = "proxy"
		return r.Networks.In(tx).Put(n)
	})
	accept(fixedMAC, "10.0.0.20", "10.0.0.9")
	if got := r.stepsAfter(t, 3); len(got) != 4 {
		t.Errorf("reported %q", got)
	}
	select {
	case <-r.reports:
		t.Errorf("reported %q", r.steps)
	default:
	}
}
