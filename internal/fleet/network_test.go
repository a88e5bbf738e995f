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

func (r *rack) addNetwork(name, prefix string) {
	r.Helper()
	r.write(func(tx *store.Tx) error {
		return r.Networks.In(tx).Create(&trivet.Network{Meta: trivet.Meta{Name: name}, Spec: trivet.NetworkSpec{
			CIDR: netip.MustParsePrefix(prefix + "0/24"), Gateway: netip.MustParseAddr(prefix + "1"),
			Ranges: []trivet.Range{
				{From: netip.MustParseAddr(prefix + "10"), To: netip.MustParseAddr(prefix + "99")}}}})
	})
}

// A machine that has never booted is assigned its address at the claim, the same as DHCP gives it later. Where its
// network is not known, a template that needs it fails, and names itself and the field.
func TestAddressAtTheClaim(t *testing.T) {
	r := newRack(t)
	leases := addressing.New(addressing.Config{Tables: r.Tables})
	r.Propose = leases.Propose
	r.addNetwork("lan", "10.0.0.")
	r.write(func(tx *store.Tx) error {
		return errors.Join(
			r.Templates.In(tx).Put(&trivet.Template{Meta: trivet.Meta{Project: "default", Name: "t"},
				Spec: trivet.TemplateSpec{
					Actions: []trivet.Action{{Name: "motd", Use: "file", With: map[string]any{
						"path": "/etc/motd", "content": "{{.Network.Name}} {{.Network.Address}}"}}}}}),
			r.Machines.In(tx).Create(&trivet.Machine{Meta: trivet.Meta{Name: "m2"},
				Spec:   trivet.MachineSpec{NICs: []trivet.NIC{{MAC: "52:54:00:00:00:02"}}},
				Status: trivet.MachineStatus{State: trivet.MachineAvailable}}),
		)
	})
	r.provision("p")
	w, err := r.Workflows.Get("default/p-1")
	r.must(err)
	offered, err := leases.Offer(&addressing.Request{MAC: mac, Machine: r.machine(),
		Network: leases.Network(netip.MustParseAddr("10.0.0.1"))})
	r.must(err)
	if got := w.Spec.Actions[0].With["content"]; got != "lan "+offered.String() {
		t.Errorf("rendered %q, and DHCP offers %s", got, offered)
	}
	if a, err := r.Addresses.Get(offered.String()); err != nil || a.Spec.Machine != "m1" || a.Spec.MAC != mac {
		t.Errorf("the address: %+v, %v", a, err)
	}

	r.addNetwork("other", "10.0.1.")
	r.provisionOf("q", trivet.ProvisionSpec{Template: "t", Machine: "m2"})
	p, err := r.Provisions.Get("default/q")
	r.must(err)
	if p.Status.State != trivet.ProvisionFailed || p.Status.Failure.Type != trivet.FaultConfiguration ||
		!strings.Contains(p.Status.Reason,
			"template t: spec.actions[0].with.content uses .Network.Name, which is empty") {
		t.Errorf("a machine in one of two networks: %+v", p.Status)
	}
}
