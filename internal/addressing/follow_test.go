package addressing_test

import (
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/addressing"
	"github.com/trivet-project/trivet/internal/store"
)

// An address that no machine has, as its provision waits for the next one, is offered to no port. The port that it
// moves to gets it, though it has one of its own, and keeps both.
func TestAddressOfAProvision(t *testing.T) {
	f := newFixture(t, addressing.Config{})
	_, err := f.Store.Update(t.Context(), func(tx *store.Tx) error {
		return f.Sites.In(tx).Create(&trivet.Site{Meta: trivet.Meta{Name: trivet.SiteName},
			Status: trivet.SiteStatus{ClusterVersion: trivet.CurrentRelease}})
	})
	must(t, err)
	own := f.bind(t, knownMAC)
	other := map[string]string{"10.0.0.100": "10.0.0.101", "10.0.0.101": "10.0.0.100"}[own.String()]
	put := func(spec trivet.AddressSpec) {
		t.Helper()
		spec.Network, spec.Provision, spec.ProvisionUID = "lan", "web", "uid"
		_, err := f.Store.Update(t.Context(), func(tx *store.Tx) error {
			return f.Addresses.In(tx).Put(&trivet.Address{Meta: trivet.Meta{Kind: "Address", Name: other}, Spec: spec})
		})
		must(t, err)
	}
	put(trivet.AddressSpec{})
	if a, err := f.Offer(f.request(t, forged(1))); err != nil || a.String() == other {
		t.Errorf("an unknown port is offered %s, %v", a, err)
	}
	if a, err := f.Offer(f.request(t, knownMAC)); err != nil || a != own {
		t.Errorf("before the move: %s, %v; want %s", a, err, own)
	}
	if _, err := f.Bind(t.Context(), f.request(t, knownMAC), ip(other)); err == nil {
		t.Error("a port bound an address that no machine has")
	}
	m := f.request(t, knownMAC).Machine
	put(trivet.AddressSpec{MAC: knownMAC, Machine: m.Name, MachineUID: m.UID})
	if a, err := f.Offer(f.request(t, knownMAC)); err != nil || a != ip(other) {
		t.Errorf("after the move: %s, %v; want %s", a, err, other)
	}
	for _, a := range []string{own.String(), other} {
		if _, err := f.Bind(t.Context(), f.request(t, knownMAC), ip(a)); err != nil {
			t.Errorf("the port has %s: %v", a, err)
		}
		if record, err := f.Addresses.Get(a); err != nil || (record.Spec.Provision == "web") != (a == other) {
			t.Errorf("the record of %s: %+v, %v", a, record, err)
		}
	}
}
