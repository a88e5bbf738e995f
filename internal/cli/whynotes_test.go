package cli

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
)

func TestUnservedNotes(t *testing.T) {
	const mac = "52:54:00:00:00:01"
	f := trivet.StatusFacts{Heads: []trivet.HeadFacts{{Name: "down"}, {Name: "head0", Own: &trivet.OwnFacts{
		Segments: []trivet.SegmentFacts{{Address: "10.8.0.1", Clients: []string{"52:54:00:00:00:02"}},
			{Address: "10.9.0.1", Clients: []string{"52:54:00:00:00:02", mac}}}}}}}
	got := unservedNotes(&f, func(m string) bool { return m == mac })
	want := mac + " asks head head0 for an address from segment 10.9.0.1, for which there is no Network: create one " +
		"whose spec.cidr contains 10.9.0.1"
	if len(got) != 1 || got[0] != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestLeasedElsewhere(t *testing.T) {
	nic := trivet.NIC{MAC: "52:54:00:00:00:01", Address: netip.MustParseAddr("10.9.0.5")}
	other := trivet.AddressSpec{MAC: "52:54:00:00:00:02"}
	named := trivet.AddressSpec{MAC: other.MAC, Machine: "a1"}
	for _, tc := range []struct {
		spec     trivet.AddressSpec
		released bool
		want     string // the holder; empty: no note
	}{
		{trivet.AddressSpec{MAC: nic.MAC, Machine: "m1"}, false, ""},
		{trivet.AddressSpec{Provision: "web1"}, false, ""},
		{named, true, ""},
		{named, false, "10.9.0.5 is leased to machine a1:"},
		{other, false, "10.9.0.5 is leased to port 52:54:00:00:00:02:"},
	} {
		got := leasedElsewhere(nic, &trivet.Address{Spec: tc.spec, Status: trivet.AddressStatus{Released: tc.released}})
		if text := strings.Join(got, "\n"); (text == "") != (tc.want == "") || !strings.Contains(text, tc.want) {
			t.Errorf("%+v: %q, want %q", tc.spec, got, tc.want)
		}
	}
}

// A machine all of whose disks fail has few lines, and a count.
func TestDiskNotesAreBounded(t *testing.T) {
	m := &trivet.Machine{Meta: trivet.Meta{Name: "m1"}, Status: trivet.MachineStatus{Inventory: &trivet.Inventory{}}}
	for range 20 {
		m.Status.Inventory.Disks = append(m.Status.Inventory.Disks, trivet.Disk{Name: "/dev/sda",
			Health: &trivet.DiskHealth{Failing: "worn out"}})
	}
	got := diskNotes(m)
	if len(got) != mostDiskNotes+1 || !strings.HasPrefix(got[0], "Disk /dev/sda has reported that it fails (SMART): worn out. ") ||
		!strings.HasPrefix(got[mostDiskNotes], "12 more of its disks ") {
		t.Errorf("%d lines: %q", len(got), got)
	}
}
