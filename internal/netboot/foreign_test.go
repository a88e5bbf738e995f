package netboot_test

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/dhcp"
	"github.com/trivet-project/trivet/internal/netboot"
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

// A server that answers a head is reported once, unless it is a head; one by this head's own address is not it. A host
// that answers by ever other addresses is bounded. One head searches in a network: the first of those that are up.
func TestForeignServerAnswers(t *testing.T) {
	r := newFixture(t)
	r.write(t, func(tx *store.Tx) error {
		for name, address := range map[string]string{"head0": "10.0.0.5", "head1": "10.0.0.2"} {
			h := &trivet.Head{Meta: trivet.Meta{Name: name}, Status: trivet.HeadStatus{DHCP: []netip.Addr{ip(address)}}}
			if err := r.Heads.In(tx).Put(h); err != nil {
				return err
			}
		}
		return nil
	})
	up := true
	s := r.server(t, netboot.Config{Head: "head1", VIP: netip.MustParsePrefix("10.0.0.9/24"),
		Live: func(string) bool { return up }})
	mac := net.HardwareAddr{2, 0, 0, 0, 0, 6}
	for range 3 {
		for _, server := range []string{"10.0.0.5", "10.0.0.9", "10.0.0.6", "10.0.0.2"} {
			s.Answered("lan", dhcp.Answer{Server: ip(server), MAC: mac})
		}
	}
	want := []string{"10.0.0.2 at 02:00:00:00:00:06 answers in lan", "10.0.0.6 at 02:00:00:00:00:06 answers in lan"}
	got := r.stepsAfter(t, 2)
	slices.Sort(got) // each is reported by itself
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for i := range 50 {
		s.Answered("lan", dhcp.Answer{Server: ip(fmt.Sprintf("10.0.7.%d", i)), MAC: mac})
	}
	if got := r.stepsAfter(t, 2); len(got) != 4 {
		t.Errorf("reported %q", got)
	}
	if s.Searches("lan") {
		t.Error("a head searches while the first one is up")
	}
	up = false
	if !s.Searches("lan") || s.Searches("unknown") {
		t.Error("no head searches while the first one is down, or one does where there is no network")
	}
}
