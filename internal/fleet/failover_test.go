package fleet_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/store"
)

// inRacks assigns racks to machines of the pool, in their order.
func (r *rack) inRacks(racks string) {
	r.Helper()
	r.write(func(tx *store.Tx) error {
		for i, name := range strings.Fields(racks) {
			m, err := r.Machines.In(tx).Get("p" + string(rune('1'+i)))
			if err != nil {
				return err
			}
			m.Spec.Rack = name
			if err := r.Machines.In(tx).Put(m); err != nil {
				return err
			}
		}
		return nil
	})
}

func (r *rack) provisionNamed(name string) *trivet.Provision {
	r.Helper()
	p, err := r.Provisions.Get("default/" + name)
	r.must(err)
	return p
}

// A provision whose machine is at fault goes on with another one: of another rack, where there is one.
func TestFailover(t *testing.T) {
	r := newRack(t)
	r.pool()
	r.inRacks("r1 r1 r1 r2 r2 r2 r2 r2 r2")
	two := 2
	r.provisionOf("a", trivet.ProvisionSpec{Template: "t", Selector: map[string]string{"pool": "p"}, Alternatives: &two})
	m, p := r.failRunAt("a", trivet.StepPowerOn)
	if m.Name != "p1" || m.Status.State != trivet.MachineQuarantined || m.Status.Provision != "" {
		t.Errorf("the first machine: %+v", m.Status)
	}
	if p.Status.State != trivet.ProvisionPending || p.Status.Machine != "" || len(p.Status.Spent) != 1 ||
		!p.Status.Ended.IsZero() {
		t.Errorf("the provision waits for another one: %+v", p.Status)
	}
	last := ""
	for _, e := range r.events(trivet.EventPrefix("machine/p1", m.UID)) {
		if e.Spec.Seq == m.Status.Events {
			last = e.Spec.Reason + ": " + e.Spec.Message
		}
	}
	if want := "Switched: provision a goes on with another machine: alternative 1 of 2"; last != want {
		t.Errorf("the last event of the first machine is %q, want %q", last, want)
	}
	r.must(r.Claim(t.Context(), "default/a"))
	p = r.provisionNamed("a")
	if p.Status.Machine != "p4" || p.Status.Workflow != "a-2" || p.Status.Attempts != 2 {
		t.Errorf("the second attempt: %+v", p.Status)
	}
	if w, err := r.Workflows.Get("default/a-2"); err != nil || w.Spec.Attempt != 2 {
		t.Errorf("its run: %+v, %v", w, err)
	}
}

// A provision whose network is at fault goes on with a machine of another network, where one is free, and fails where
// none is.
func TestFailoverToAnotherNetwork(t *testing.T) {
	for name, other := range map[string]string{"another network": "10.0.1.1", "the same network": "10.0.0.200",
		"an unknown network": ""} {
		t.Run(name, func(t *testing.T) {
			r := newRack(t)
			r.pool()
			r.upgraded(trivet.CurrentRelease)
			labels := map[string]string{"few": "yes"}
			for _, name := range []string{"p1", "p2", "p3"} {
				r.label(name, labels)
			}
			nic := trivet.NIC{MAC: "52:54:00:00:04:01"}
			if other != "" {
				nic.Address = netip.MustParseAddr(other)
			}
			r.write(func(tx *store.Tx) error {
				return errors.Join(r.Networks.In(tx).Create(&trivet.Network{Meta: trivet.Meta{Name: "lan2"},
					Spec: trivet.NetworkSpec{CIDR: netip.MustParsePrefix("10.0.1.0/24")}}),
					r.Machines.In(tx).Create(&trivet.Machine{Meta: trivet.Meta{Name: "q1", Labels: labels},
						Spec:   trivet.MachineSpec{NICs: []trivet.NIC{nic}},
						Status: trivet.MachineStatus{State: trivet.MachineAvailable}}))
			})
			none := 0
			r.provisionOf("a", trivet.ProvisionSpec{Template: "t", Selector: labels, Alternatives: &none})
			r.failRunAt("a", trivet.StepDHCP)
			r.provisionOf("a2", trivet.ProvisionSpec{Template: "t", Selector: labels, Alternatives: &none})
			r.failRunAt("a2", trivet.StepDHCP)
			r.provisionOf("b", trivet.ProvisionSpec{Template: "t", Selector: labels})
			m, p := r.failRunAt("b", trivet.StepDHCP)
			if m.Name != "p3" || m.Status.State != trivet.MachineAvailable {
				t.Errorf("the machine: %s, %+v", m.Name, m.Status)
			}
			if p.Status.State != trivet.ProvisionPending || p.Status.Withdrawn != 1 || len(p.Status.Spent) != 0 {
				t.Errorf("the provision: %+v", p.Status)
			}
			r.must(r.Claim(t.Context(), "default/b"))
			p = r.provisionNamed("b")
			if name == "another network" {
				if p.Status.Machine != "q1" || p.Status.State != trivet.ProvisionRunning || p.Status.Failure != nil {
					t.Errorf("the provision: %+v", p.Status)
				}
			} else if f := p.Status.Failure; p.Status.State != trivet.ProvisionFailed || f.Type != trivet.FaultNetwork ||
				!strings.Contains(p.Status.Reason, "network lan is at fault") || p.Status.Ended.IsZero() {
				t.Errorf("the provision: %+v", p.Status)
			}
		})
	}
}

// A provision that failed on a machine does not use it again, though it was repaired meanwhile. Others do.
func TestFailoverAvoidsSpentMachines(t *testing.T) {
	r := newRack(t)
	r.pool()
	only := map[string]string{"only": "p1"}
	r.label("p1", only)
	r.provisionOf("a", trivet.ProvisionSpec{Template: "t", Selector: only})
	if _, p := r.failRunAt("a", trivet.StepPowerOn); p.Status.State != trivet.ProvisionPending {
		t.Fatalf("the provision: %+v", p.Status)
	}
	r.acceptReleased("p1")
	before := r.Store.Revision()
	r.must(r.Offer(t.Context(), "p1"))
	if after := r.Store.Revision(); after != before {
		t.Errorf("the offer of the machine that it failed on made %d writes", after-before)
	}
	r.must(r.Claim(t.Context(), "default/a"))
	if p := r.provisionNamed("a"); p.Status.State != trivet.ProvisionPending ||
		p.Status.Reason != "no machine is free: 1 not used, as it has failed" {
		t.Errorf("the provision: %+v", p.Status)
	}
	r.provisionOf("b", trivet.ProvisionSpec{Template: "t", Selector: only})
	if p := r.provisionNamed("b"); p.Status.Machine != "p1" {
		t.Errorf("another provision: %+v", p.Status)
	}
	r.label("p2", only)
	r.must(r.Offer(t.Context(), "p2"))
	if p := r.provisionNamed("a"); p.Status.Machine != "p2" {
		t.Errorf("with another machine: %+v", p.Status)
	}
}

func (r *rack) label(machine string, labels map[string]string) {
	r.Helper()
	r.write(func(tx *store.Tx) error {
		m, err := r.Machines.In(tx).Get(machine)
		if err != nil {
			return err
		}
		m.Labels = labels
		return r.Machines.In(tx).Put(m)
	})
}

// acceptReleased returns a quarantined machine to placement.
func (r *rack) acceptReleased(machine string) {
	r.Helper()
	for range 2 { // to its former state, and from that one
		m, err := r.Machines.Get(machine)
		r.must(err)
		if m.Status.State != trivet.MachineAvailable {
			r.must(r.Accept(r.Context(), machine))
		}
	}
}

// A fault of what machines share spends two machines at most: that of the first is not known before the second one.
func TestSharedFaultSpendsTwoMachines(t *testing.T) {
	r := newRack(t)
	r.pool()
	eight := 8
	r.provisionOf("a", trivet.ProvisionSpec{Template: "t", Selector: map[string]string{"pool": "p"},
		Alternatives: &eight})
	r.failRunAt("a", trivet.StepHello)
	r.must(r.Claim(t.Context(), "default/a"))
	m, p := r.failRunAt("a", trivet.StepHello)
	if p.Status.State != trivet.ProvisionFailed || p.Status.Failure.Type != trivet.FaultPlatform ||
		m.Status.State == trivet.MachineQuarantined {
		t.Errorf("after the second machine: %+v; the machine %+v", p.Status, m.Status)
	}
}

// What has a machine at fault and no further alternative ends, and says that the configuration may be at fault.
func TestFailoverEnds(t *testing.T) {
	r := newRack(t)
	r.pool()
	r.provisionOf("a", trivet.ProvisionSpec{Template: "t", Selector: map[string]string{"pool": "p"}})
	r.failRunAt("a", trivet.StepPowerOn)
	r.must(r.Claim(t.Context(), "default/a"))
	_, p := r.failRunAt("a", trivet.StepDHCP)
	if p.Status.State != trivet.ProvisionFailed || len(p.Status.Spent) != 2 || p.Status.Ended.IsZero() ||
		!strings.Contains(p.Status.Reason, "power-on failed on p1: 2 machines have failed with this configuration") {
		t.Errorf("after the second machine: %+v", p.Status)
	}
}
