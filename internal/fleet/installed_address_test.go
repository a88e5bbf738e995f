package fleet_test

import (
	"errors"
	"net/netip"
	"strings"
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

// A machine whose address is fixed has that one: it is recorded, and no other one can be stated. What another port has
// is named by the error.
func TestFixedAddressOfInstalled(t *testing.T) {
	r := newRack(t).upgraded(trivet.CurrentRelease)
	leases := addressing.New(addressing.Config{Tables: r.Tables})
	r.Predict, r.Stated = leases.Predict, leases.Stated
	r.addNetwork("lan", "10.0.0.")
	r.recovered()
	m := r.newMachine(1)
	r.do(m, "accept recover")
	fix := func(address string) {
		r.write(func(tx *store.Tx) error {
			return r.changeMachine(tx, m.name, func(m *trivet.Machine) {
				m.Spec.NICs[0].Address = netip.Addr{}
				if address != "" {
					m.Spec.NICs[0].Address = netip.MustParseAddr(address)
				}
			})
		})
	}
	r.write(func(tx *store.Tx) error {
		return errors.Join(
			r.Provisions.In(tx).Create(&trivet.Provision{Meta: trivet.Meta{Project: "default", Name: m.provision},
				Spec: trivet.ProvisionSpec{Template: "t", Machine: m.name}}),
			r.Addresses.In(tx).Create(&trivet.Address{Meta: trivet.Meta{Name: "10.0.0.16"},
				Spec: trivet.AddressSpec{Network: "lan", MAC: "52:54:00:ff:ff:ff"}}))
	})
	state := func(address string) error {
		req := trivet.ResolveRequest{Decision: trivet.ResolveInstalled}
		if address != "" {
			req.Address = netip.MustParseAddr(address)
		}
		return r.Resolve(t.Context(), "default/"+m.provision, req, "alice")
	}
	err := state("10.0.0.16")
	if !errors.Is(err, trivet.ErrConflict) || !strings.Contains(hints(err), "trivet describe address 10.0.0.16") {
		t.Errorf("the address of another port: %v (%s)", err, hints(err))
	}
	fix("10.0.0.200")
	if err := state("10.0.0.15"); !errors.Is(err, trivet.ErrInvalid) || !strings.Contains(err.Error(), "10.0.0.200") {
		t.Errorf("another address than the fixed one: %v", err)
	}
	r.must(state(""))
	if p := r.provisionNamed(m.provision); p.Status.Address != "10.0.0.200" || r.holder("10.0.0.200") != m.name {
		t.Errorf("the fixed address: %+v, which %q has", p.Status, r.holder("10.0.0.200"))
	}
}

// hints returns the hints of an error and of those that it wraps.
func hints(err error) (all string) {
	for e := (*trivet.Error)(nil); errors.As(err, &e); err = e.Err {
		all += e.Hint
	}
	return all
}
