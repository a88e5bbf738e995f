package fleet_test

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/addressing"
	"github.com/trivet-project/trivet/internal/store"
)

// The address that a machine has had since before a recovery is not recorded any more: by the statement of the operator
// no other machine gets it. One that another machine has is refused, and changes nothing.
func TestAddressOfInstalled(t *testing.T) {
	r := newRack(t).upgraded(trivet.CurrentRelease)
	leases := addressing.New(addressing.Config{Tables: r.Tables})
	r.Predict, r.Stated = leases.Predict, leases.Stated
	r.addNetwork("lan", "10.0.0.")
	r.recovered()
	first, second := r.newMachine(1), r.newMachine(2)
	for _, m := range []*subject{first, second} {
		r.do(m, "accept recover")
		r.write(func(tx *store.Tx) error {
			return r.Provisions.In(tx).Create(&trivet.Provision{Meta: trivet.Meta{Project: "default", Name: m.provision},
				Spec: trivet.ProvisionSpec{Template: "t", Machine: m.name}})
		})
	}
	state := func(m *subject, address string) error {
		req := trivet.ResolveRequest{Decision: trivet.ResolveInstalled}
		if address != "" {
			req.Address = netip.MustParseAddr(address)
		}
		return r.Resolve(t.Context(), "default/"+m.provision, req, "alice")
	}
	if err := state(first, "10.0.0.200"); !errors.Is(err, trivet.ErrInvalid) {
		t.Errorf("an address of no range: %v", err)
	}
	r.must(state(first, "10.0.0.15"))
	if p := r.provisionNamed(first.provision); p.Status.Address != "10.0.0.15" || r.holder("10.0.0.15") != first.name {
		t.Errorf("the first one: %+v, and %q has the address", p.Status, r.holder("10.0.0.15"))
	}
	if err := state(second, "10.0.0.15"); !errors.Is(err, trivet.ErrConflict) || second.state() != "unverified" {
		t.Errorf("the address of the first one: %v, and the machine is %s", err, second.state())
	}
	r.must(state(second, ""))
	if p := r.provisionNamed(second.provision); p.Status.Address != "" || p.Status.Machine != second.name {
		t.Errorf("without an address: %+v", p.Status)
	}
}
