package fleet_test

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/learnt"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/workflow"
)

// pool adds machines p1 to p9 of one platform and network to a rack.
func (r *rack) pool() {
	r.Helper()
	digest := "sha256:" + strings.Repeat("0", 64)
	blob := trivet.BlobRef{Digest: digest, Bytes: 1, Chunks: digest}
	r.write(func(tx *store.Tx) error {
		errs := []error{
			r.Platforms.In(tx).Create(&trivet.Platform{Meta: trivet.Meta{Name: "linux"},
				Spec: trivet.PlatformSpec{Arch: "amd64", Kernel: blob, Initrd: blob}}),
			r.Networks.In(tx).Create(&trivet.Network{Meta: trivet.Meta{Name: "lan"},
				Spec: trivet.NetworkSpec{CIDR: netip.MustParsePrefix("10.0.0.0/24")}}),
			r.Sites.In(tx).Create(&trivet.Site{Meta: trivet.Meta{Name: trivet.SiteName},
				Spec: trivet.SiteSpec{Platform: "linux"}}),
		}
		for i := 1; i <= 9; i++ {
			name, mac := fmt.Sprint("p", i), fmt.Sprintf("52:54:00:00:03:%02x", i)
			errs = append(errs,
				r.Machines.In(tx).Create(&trivet.Machine{
					Meta: trivet.Meta{Name: name, Labels: map[string]string{"pool": "p"}},
					Spec: trivet.MachineSpec{NICs: []trivet.NIC{{MAC: mac}},
						BMC: &trivet.BMC{Protocol: "ipmi", Address: "10.0.0.9", Secret: "bmc"}},
					Status: trivet.MachineStatus{State: trivet.MachineAvailable}}),
				r.MACs.In(tx).Create(&trivet.MAC{Meta: trivet.Meta{Name: mac}, Spec: trivet.MACSpec{Machine: name}}),
				r.Addresses.In(tx).Create(&trivet.Address{Meta: trivet.Meta{Name: fmt.Sprint("10.0.0.", i)},
					Spec: trivet.AddressSpec{Network: "lan", MAC: mac, Machine: name}}))
		}
		return errors.Join(errs...)
	})
}

// failAt runs a provision without alternatives until its machine has used up the attempts of a step, and returns how
// both ended.
func (r *rack) failAt(name, step string) (m *trivet.Machine, p *trivet.Provision) {
	r.Helper()
	none := 0
	r.provisionOf(name, trivet.ProvisionSpec{Template: "t", Selector: map[string]string{"pool": "p"},
		Alternatives: &none})
	return r.failRunAt(name, step)
}

// failRunAt lets the run of a provision use up the attempts of a step, and returns its machine and the provision.
func (r *rack) failRunAt(name, step string) (m *trivet.Machine, p *trivet.Provision) {
	r.Helper()
	p, err := r.Provisions.Get("default/" + name)
	r.must(err)
	if p.Status.State == trivet.ProvisionPending {
		return nil, p
	}
	machine := p.Status.Machine
	for {
		wait, ok := r.reach(name, step)
		if !ok {
			break
		}
		r.must(r.Expire(r.Context(), machine, wait))
	}
	m, err = r.Machines.Get(machine)
	r.must(err)
	p, err = r.Provisions.Get("default/" + name)
	r.must(err)
	return m, p
}

// reach lets the machine of a provision's run do what comes before a step, and returns what the run waits for then; ok
// is false once it has ended.
func (r *rack) reach(name, step string) (wait workflow.Wait, ok bool) {
	r.Helper()
	p := r.provisionNamed(name)
	for {
		w, err := r.Workflows.Get(trivet.Resolve("", p.Status.Workflow))
		r.must(err)
		m, err := r.Machines.Get(w.Spec.Machine)
		r.must(err)
		wait, _, ok := workflow.CurrentWait(w)
		switch {
		case ok && step == trivet.StepHello && wait.Step != step:
			r.must(r.ReachBootStep(r.Context(), m.Name, trivet.StepKernel, m.Status.Epoch))
		case ok && step == trivet.StepDHCP && wait.Step == trivet.StepPowerOn:
			held, err := r.AcquireIntent(r.Context(), m.Name, *m.Status.Intent, 0)
			r.must(err)
			r.must(r.RecordPower(r.Context(), m.Name, held, "on"))
		default:
			return wait, ok
		}
	}
}

func (r *rack) provisionOf(name string, spec trivet.ProvisionSpec) {
	r.Helper()
	r.write(func(tx *store.Tx) error {
		return r.Provisions.In(tx).Create(&trivet.Provision{Meta: trivet.Meta{Project: "default", Name: name}, Spec: spec})
	})
	r.must(r.Claim(r.Context(), "default/"+name))
}

// What several machines share and fail with is at fault from the second failure on, a network from the third: not the
// whole pool is quarantined. Provisions by selector wait, until a machine that is named succeeds or the record is
// changed.
func TestSharedFailures(t *testing.T) {
	for _, tc := range []struct {
		step  string
		fault trivet.FailureType
		what  string
		waits bool
	}{
		{trivet.StepHello, trivet.FaultPlatform, "platform linux is at fault: p1 and p2 failed at hello", true},
		{trivet.StepDHCP, trivet.FaultNetwork, "network lan is at fault: p1, p2 and p3 failed at dhcp", true},
		{trivet.StepPowerOn, trivet.FaultNetwork, "the power of machines is at fault: p1 and p2 failed at power-on",
			false},
	} {
		t.Run(tc.step, func(t *testing.T) {
			r := newRack(t)
			r.pool()
			m, p := r.failAt("a", tc.step)
			if m.Status.State != trivet.MachineQuarantined || p.Status.Failure.Type != trivet.FaultMachine {
				t.Errorf("the first one: %+v, %+v", m.Status, p.Status.Failure)
			}
			last := "p2"
			if tc.step == trivet.StepDHCP {
				last = "p3"
				if m, p = r.failAt("b0", tc.step); m.Status.State != trivet.MachineQuarantined ||
					p.Status.Failure.Type != trivet.FaultMachine {
					t.Errorf("of two machines: %+v, %+v", m.Status, p.Status.Failure)
				}
			}
			m, p = r.failAt("b", tc.step)
			if m.Name != last || m.Status.State != trivet.MachineAvailable || p.Status.Failure.Type != tc.fault ||
				!strings.Contains(p.Status.Reason, tc.what) {
				t.Errorf("the second one: %+v, %+v", m.Status, p.Status)
			}
			r.wantCorrected("p1", tc.fault, tc.what)
			m, p = r.failAt("c", tc.step)
			if tc.waits {
				r.wantPending(p, tc.what)
				r.bootNamed("p4")
				r.must(r.Claim(t.Context(), "default/c"))
				if p, _ = r.Provisions.Get("default/c"); p.Status.State != trivet.ProvisionRunning {
					t.Errorf("after another machine has succeeded: %+v", p.Status)
				}
			} else if m.Status.State != trivet.MachineAvailable || p.Status.Failure.Type != tc.fault {
				t.Errorf("the third one: %+v, %+v", m.Status, p.Status)
			}
		})
	}
}

// wantCorrected checks that a machine, which provision a used, is known not to have been at fault.
func (r *rack) wantCorrected(machine string, fault trivet.FailureType, what string) {
	r.Helper()
	m, err := r.Machines.Get(machine)
	r.must(err)
	w, err := r.Workflows.Get(trivet.Resolve("", m.Status.Workflow))
	r.must(err)
	p := r.provisionNamed("a")
	if m.Status.State != trivet.MachineAvailable || m.Status.Reason != "" || w.Status.Failure.Type != fault ||
		!strings.Contains(w.Status.Failure.Cause, what) || p.Status.Failure == nil || p.Status.Failure.Type != fault ||
		p.Status.Spent[0].Failure.Type != fault || learnt.Faults(m.Status.Reputation, time.Now()) != 0 {
		r.Errorf("the first one: %+v, %+v; its provision %+v", m.Status, w.Status.Failure, p.Status)
	}
	corrected := 0
	for _, e := range r.events(trivet.EventPrefix("machine/"+machine, m.UID)) {
		if e.Spec.Reason == trivet.ReasonFaultCorrected {
			corrected++
		}
	}
	if corrected != 1 {
		r.Errorf("%d events say that %s was not at fault", corrected, machine)
	}
}

// What an operator has decided about the first machine meanwhile stays.
func TestOperatorsQuarantineStays(t *testing.T) {
	r := newRack(t)
	r.pool()
	r.failAt("a", trivet.StepHello)
	r.must(r.Quarantine(t.Context(), "p1", "its fan is broken"))
	r.failAt("b", trivet.StepHello)
	m, err := r.Machines.Get("p1")
	r.must(err)
	if m.Status.State != trivet.MachineQuarantined || m.Status.Reason != "its fan is broken" {
		t.Errorf("%+v", m.Status)
	}
}

// Machines that fail at the same time are at fault themselves where another one has succeeded since they began to try:
// what they share works.
func TestFailuresWhileAnotherSucceeds(t *testing.T) {
	for _, step := range []string{trivet.StepPowerOn, trivet.StepDHCP, trivet.StepHello} {
		t.Run(step, func(t *testing.T) {
			r := newRack(t)
			r.pool()
			none := 0
			for _, name := range []string{"a", "b"} {
				r.provisionOf(name, trivet.ProvisionSpec{Template: "t", Selector: map[string]string{"pool": "p"},
					Alternatives: &none})
				r.reach(name, step)
			}
			r.bootNamed("p3")
			r.observe()
			for _, name := range []string{"a", "b"} {
				m, p := r.failRunAt(name, step)
				if m.Status.State != trivet.MachineQuarantined || p.Status.Failure.Type != trivet.FaultMachine {
					t.Errorf("%s: %+v, %+v", name, m.Status, p.Status.Failure)
				}
			}
			_, p := r.failAt("c", step) // which nothing keeps waiting
			if p.Status.Failure == nil || p.Status.Failure.Type != trivet.FaultMachine {
				t.Errorf("a third one: %+v", p.Status)
			}
		})
	}
}

// observe shows the fleet all runs, as the feed does.
func (r *rack) observe() {
	for w := range r.Workflows.AllShared() {
		r.Observe(nil, w)
	}
}

func (r *rack) wantPending(p *trivet.Provision, what string) {
	r.Helper()
	if p.Status.State != trivet.ProvisionPending || !strings.Contains(p.Status.Reason, what) {
		r.Errorf("a further provision: %+v", p.Status)
	}
}

// bootNamed runs a provision that names its machine up to the agent's hello.
func (r *rack) bootNamed(machine string) {
	r.Helper()
	r.provisionOf("named", trivet.ProvisionSpec{Template: "t", Machine: machine})
	m, err := r.Machines.Get(machine)
	r.must(err)
	_, err = r.Hello(r.Context(), &trivet.Hello{MAC: m.Spec.NICs[0].MAC, Key: "k", BootID: "b"},
		auth.BootToken{Machine: machine, MAC: m.Spec.NICs[0].MAC, Epoch: m.Status.Epoch})
	r.must(err)
}

// The first agent of the new version proves that a platform that followed the heads works; one that booted before does
// not.
func TestAgentProvesPlatform(t *testing.T) {
	r := newRack(t)
	r.pool()
	digest := "sha256:" + strings.Repeat("1", 64)
	r.write(func(tx *store.Tx) error {
		site, err := r.Sites.In(tx).Get(trivet.SiteName)
		if err != nil {
			return err
		}
		site.Status.ClusterVersion = trivet.CurrentRelease
		return r.Sites.In(tx).Put(site)
	})
	r.write(func(tx *store.Tx) error {
		p, err := r.Platforms.In(tx).Get("linux")
		if err != nil {
			return err
		}
		initrd := &trivet.PlatformInitrd{Blob: trivet.BlobRef{Digest: digest, Bytes: 9, Chunks: digest},
			Agent: trivet.PlatformAgent{Base: 1, Program: digest, Version: "v2"}}
		p.Status.Upgrade = &trivet.PlatformUpgrade{Run: 1, Imported: p.Spec.Initrd.Digest, Initrd: initrd, Former: initrd}
		p.Status.Failures = &trivet.SharedFailures{Generation: p.Generation, Machines: []string{"p9"}}
		return r.Platforms.In(tx).Put(p)
	})
	for i, version := range []string{"v1", "v2"} {
		name := fmt.Sprint("p", i+1)
		r.provisionOf(name, trivet.ProvisionSpec{Template: "t", Machine: name})
		m, err := r.Machines.Get(name)
		r.must(err)
		_, err = r.Hello(r.Context(), &trivet.Hello{MAC: m.Spec.NICs[0].MAC, Key: "k", BootID: "b", Version: version},
			auth.BootToken{Machine: name, MAC: m.Spec.NICs[0].MAC, Epoch: m.Status.Epoch})
		r.must(err)
		p, err := r.Platforms.Get("linux")
		r.must(err)
		if p.Status.Upgrade.Proven.IsZero() != (version == "v1") || p.Status.Failures != nil {
			t.Errorf("after an agent of %s: %+v", version, p.Status)
		}
	}
}

// A machine that fails where others succeed is at fault itself, again and again.
func TestFailuresBesideSuccessAreTheMachines(t *testing.T) {
	r := newRack(t)
	r.pool()
	for i, name := range []string{"a", "b", "c"} {
		m, p := r.failAt(name, trivet.StepHello)
		if m == nil || m.Status.State != trivet.MachineQuarantined || p.Status.Failure.Type != trivet.FaultMachine {
			t.Fatalf("failure %d: %+v", i, p.Status)
		}
		r.bootNamed(fmt.Sprint("p", 9-i))
		r.release("named")
	}
}

// A provision that has failed for another reason since the run whose fault is corrected keeps its own failure.
func TestCorrectionKeepsALaterFailure(t *testing.T) {
	r := newRack(t)
	r.pool()
	r.upgraded(trivet.CurrentRelease)
	only := map[string]string{"only": "p1"}
	r.label("p1", only)
	r.provisionOf("a", trivet.ProvisionSpec{Template: "t", Selector: only, IfNoMachine: trivet.NoMachineFail})
	r.failRunAt("a", trivet.StepDHCP)
	r.bmcReports("p1", "off")
	r.must(r.Claim(t.Context(), "default/a"))
	if p := r.provisionNamed("a"); p.Status.State != trivet.ProvisionFailed ||
		p.Status.Failure.Type != trivet.FaultConfiguration {
		t.Fatalf("no other machine: %+v", p.Status)
	}
	r.failAt("b", trivet.StepDHCP)
	r.failAt("c", trivet.StepDHCP)
	p := r.provisionNamed("a")
	if p.Status.Spent[0].Failure.Type != trivet.FaultNetwork || p.Status.Failure.Type != trivet.FaultConfiguration {
		t.Errorf("after the correction: %+v, %+v", p.Status.Spent, p.Status.Failure)
	}
}
