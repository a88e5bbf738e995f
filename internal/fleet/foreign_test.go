package fleet_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/fleet"
	"github.com/trivet-project/trivet/internal/state"
)

// A DHCP server that is not a head is an event of its network and of the machine, with its address.
func TestForeignServerIsAnEvent(t *testing.T) {
	r := newRack(t)
	for i := range 20 {
		server := netip.AddrFrom4([4]byte{10, 0, 1, byte(i)})
		r.must(r.ReportForeignServer(t.Context(), fleet.ForeignServer{Network: "lan", Server: server, MAC: mac,
			Machine: "m1", Address: netip.MustParseAddr("10.0.0.66")}))
	}
	events := r.Events.ListBy(state.BySubject, "network/lan")
	if len(events) != 16 || !events[0].Spec.Warning || !strings.Contains(events[0].Spec.Message, "server 10.0.1.") {
		t.Errorf("%d events: %+v", len(events), events[0])
	}
	if got := r.reasons(); got != trivet.ReasonForeignDHCP {
		t.Errorf("the machine's events: %s", got)
	}
}
