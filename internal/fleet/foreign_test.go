package fleet_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/fleet"
	"github.com/trivet-project/trivet/internal/store"
)

// A DHCP server that is not a head is an event of its network and of the machine, with its address.
func TestForeignServerIsAnEvent(t *testing.T) {
	r := newRack(t)
	r.write(func(tx *store.Tx) error {
		return r.Networks.In(tx).Create(&trivet.Network{Meta: trivet.Meta{Name: "lan"},
			Spec: trivet.NetworkSpec{CIDR: netip.MustParsePrefix("10.0.1.0/24")}})
	})
	for i := range 20 {
		server := netip.AddrFrom4([4]byte{10, 0, 1, byte(i)})
		r.must(r.ReportForeignServer(t.Context(), fleet.ForeignServer{Network: "lan", Server: server, MAC: mac,
			Machine: "m1", Address: netip.MustParseAddr("10.0.0.66")}))
	}
	events := r.events(trivet.EventPrefix("network/lan", ""))
	if len(events) != 16 || !events[0].Spec.Warning || !strings.Contains(events[0].Spec.Message, "server 10.0.1.") {
		t.Errorf("%d events: %+v", len(events), events[0])
	}
	if got := r.reasons(); got != trivet.ReasonForeignDHCP {
		t.Errorf("the machine's events: %s", got)
	}
}
