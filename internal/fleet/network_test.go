package fleet_test

import (
	"encoding/json"
	"errors"
	"net/netip"
	"slices"
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

// A run has the machine's interfaces as of its claim. Its agent is granted them as cloud-init reads them, with the
// address of the boot port; so is a template. A provision's own network-data is in place of them.
func TestInterfacesOfTheInstalledSystem(t *testing.T) {
	r := newRack(t).upgraded(trivet.CurrentRelease)
	r.Propose = addressing.New(addressing.Config{Tables: r.Tables}).Propose
	r.addNetwork("lan", "10.0.0.")
	r.write(func(tx *store.Tx) error {
		m, err := r.Machines.In(tx).Get("m1")
		if err != nil {
			return err
		}
		m.Spec.NICs[0].Address = netip.MustParseAddr("10.0.0.7")
		m.Spec.Interfaces = []trivet.Interface{{Name: "lan0", MAC: mac},
			{Name: "bond0", Bond: &trivet.Bond{Ports: []string{"lan0"}, Mode: "active-backup"}}}
		return errors.Join(r.Machines.In(tx).Put(m),
			r.Templates.In(tx).Put(&trivet.Template{Meta: trivet.Meta{Project: "default", Name: "t"},
				Spec: trivet.TemplateSpec{Actions: []trivet.Action{{Name: "netplan", Use: "file", With: map[string]any{
					"path": "/etc/netplan/50.yaml", "content": `{"network": {{.Network.Config}}}`}}}}}))
	})
	r.provision("p")
	r.write(func(tx *store.Tx) error { // what is changed later is not of this run
		m, err := r.Machines.In(tx).Get("m1")
		if err != nil {
			return err
		}
		m.Spec.Interfaces = nil
		return r.Machines.In(tx).Put(m)
	})
	r.must(r.hello("k", r.machine().Status.Epoch))
	run := r.GrantedRun(r.machine())
	if run == nil || len(run.Spec.Seed.Interfaces) != 2 {
		t.Fatalf("the run: %+v", run)
	}
	var config struct {
		Bonds map[string]struct {
			MACAddress string   `json:"macaddress"`
			Addresses  []string `json:"addresses"`
		} `json:"bonds"`
	}
	if err := json.Unmarshal([]byte(run.Spec.Seed.NetworkData), &config); err != nil {
		t.Fatalf("%v: %s", err, run.Spec.Seed.NetworkData)
	}
	if b := config.Bonds["bond0"]; b.MACAddress != mac || !slices.Equal(b.Addresses, []string{"10.0.0.7/24"}) {
		t.Errorf("network-config: %s", run.Spec.Seed.NetworkData)
	}
	if got := run.Spec.Actions[0].With["content"]; got != `{"network": `+run.Spec.Seed.NetworkData+"}" {
		t.Errorf("the template has %s, the agent %s", got, run.Spec.Seed.NetworkData)
	}
	w, err := r.Workflows.Get("default/p-1")
	r.must(err)
	if w.Spec.Seed.NetworkData != "" {
		t.Errorf("the grant has changed the record: %s", w.Spec.Seed.NetworkData)
	}
}

// A provision's own network-data is in place of the machine's interfaces; where the boot network is not known, the
// first port uses DHCP.
func TestInterfacesWithoutANetwork(t *testing.T) {
	for own, want := range map[string]string{"": `"dhcp4": true`, "version: 2\n": "version: 2\n"} {
		r := newRack(t).upgraded(trivet.CurrentRelease)
		r.write(func(tx *store.Tx) error {
			m, err := r.Machines.In(tx).Get("m1")
			if err != nil {
				return err
			}
			m.Spec.Interfaces = []trivet.Interface{{Name: "lan0", MAC: mac}}
			return r.Machines.In(tx).Put(m)
		})
		r.provisionOf("p", trivet.ProvisionSpec{Template: "t", Machine: "m1", NetworkData: own})
		r.must(r.hello("k", r.machine().Status.Epoch))
		run := r.GrantedRun(r.machine())
		if run == nil || !strings.Contains(run.Spec.Seed.NetworkData, want) || own != "" && run.Spec.Seed.Interfaces != nil {
			t.Errorf("network-data %q: %+v", own, run)
		}
	}
}
