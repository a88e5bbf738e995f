package fleet_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/store"
)

// many runs do for 0 to n-1, in transactions of 50.
func (r *rack) many(n int, do func(tx *store.Tx, i int) error) {
	r.Helper()
	for i := 0; i < n; i += 50 {
		r.write(func(tx *store.Tx) (err error) {
			for j := i; j < min(n, i+50); j++ {
				err = errors.Join(err, do(tx, j))
			}
			return err
		})
	}
}

// wait adds n provisions.
func (r *rack) wait(n int, prefix string, spec trivet.ProvisionSpec) {
	r.Helper()
	spec.Template = "t"
	r.many(n, func(tx *store.Tx, i int) error {
		return r.Provisions.In(tx).Create(&trivet.Provision{Spec: spec,
			Meta: trivet.Meta{Project: "default", Name: fmt.Sprintf("%s%05d", prefix, i)}})
	})
}

// allocations returns the work of a function that writes nothing, as the number of its allocations.
func (r *rack) allocations(do func()) float64 {
	r.Helper()
	before := r.Store.Revision()
	n := testing.AllocsPerRun(20, do)
	if r.Store.Revision() != before {
		r.Errorf("%d writes", r.Store.Revision()-before)
	}
	return n
}

// Whatever the number of provisions that wait for one machine, its release is one decision, and the request and the
// cancellation of one more read and write only that one.
func TestManyProvisionsWaitForOneMachine(t *testing.T) {
	r := newAgedRack(t)
	m := r.free(1, map[string]string{"rack": "r1"})
	r.waits("holder", trivet.ProvisionSpec{Machine: m})
	r.must(r.Claim(t.Context(), "default/holder"))
	named, selected := trivet.ProvisionSpec{Machine: m}, trivet.ProvisionSpec{Selector: map[string]string{"rack": "r1"}}
	work := func() (add, freed float64) {
		waiting := func(name string, spec trivet.ProvisionSpec) float64 {
			r.waits(name, spec)
			before := r.Store.Revision()
			r.must(r.Claim(t.Context(), "default/"+name))
			if n := r.Store.Revision() - before; n != 1 {
				t.Errorf("the claim of one that waits has %d writes", n)
			}
			return r.allocations(func() { r.must(r.Claim(t.Context(), "default/"+name)) })
		}
		add = waiting("named", named) + waiting("selected", selected)
		machine, err := r.Machines.GetShared(m)
		r.must(err)
		freed = r.allocations(func() {
			for range r.WaitingFor(machine) {
				return
			}
			t.Error("no one waits")
		})
		before := r.Store.Revision()
		r.release("named")
		r.release("selected")
		if n := r.Store.Revision() - before; n != 2 {
			t.Errorf("the deletion of two that wait has %d writes", n)
		}
		return add, freed
	}
	r.wait(1, "a", named)
	r.wait(1, "b", selected)
	addOne, freedOne := work()
	const n = 2000
	r.wait(n, "c", named)
	r.wait(n, "d", selected)
	if add, freed := work(); add > 2*addOne || freed > 2*freedOne {
		t.Errorf("%d waiting provisions cost %.0f allocations for one more, and %.0f for a machine; two cost %.0f and "+
			"%.0f", 2*n, add, freed, addOne, freedOne)
	}

	r.release("holder")
	r.write(func(tx *store.Tx) error { // its former system does not run any more
		machine, err := r.Machines.In(tx).Get(m)
		if err == nil {
			machine.Status.State = trivet.MachineAvailable
			err = r.Machines.In(tx).Put(machine)
		}
		return err
	})
	before := r.Store.Revision()
	r.must(r.Offer(t.Context(), m))
	if n := r.Store.Revision() - before; n != 1 {
		t.Errorf("the free machine cost %d transactions", n)
	}
	r.wantRunning("a00000: " + m)
}

// faultyPlatform makes all machines boot a platform that is at fault.
func (r *rack) faultyPlatform() {
	r.Helper()
	ref := trivet.BlobRef{Digest: "sha256:" + strings.Repeat("0", 64), Bytes: 1,
		Chunks: "sha256:" + strings.Repeat("0", 64)}
	r.write(func(tx *store.Tx) error {
		p := &trivet.Platform{Meta: trivet.Meta{Name: "bad"},
			Spec: trivet.PlatformSpec{Arch: "amd64", Kernel: ref, Initrd: ref}}
		p.Status.Failures = &trivet.SharedFailures{Generation: 1, Machines: []string{"x1", "x2", "x3"}}
		return errors.Join(r.Platforms.In(tx).Put(p), r.Sites.In(tx).Put(&trivet.Site{
			Meta: trivet.Meta{Name: trivet.SiteName}, Spec: trivet.SiteSpec{Platform: "bad"}}))
	})
}

// A machine that no provision by selector may use now is no decision for each of those that wait.
func TestAvoidedMachineIsNotOfferedToEach(t *testing.T) {
	r := newAgedRack(t)
	r.faultyPlatform()
	m := r.free(1, map[string]string{"rack": "r1"})
	selected := trivet.ProvisionSpec{Selector: map[string]string{"rack": "r1"}}
	r.wait(1, "a", selected)
	offer := func() { r.must(r.Offer(t.Context(), m)) }
	one := r.allocations(offer)
	r.wait(500, "b", selected)
	if all := r.allocations(offer); all > 2*one {
		t.Errorf("501 waiting provisions cost %.0f allocations, one costs %.0f", all, one)
	}
	r.waits("named", trivet.ProvisionSpec{Machine: m})
	offer()
	r.wantRunning("named: " + m)
}

// A claim by a selector that matches all machines reads a bounded number of them, also where none of them can be used.
// It goes on at the next claim, so that one that can be used is found.
func TestClaimReadsFewMachines(t *testing.T) {
	r := newAgedRack(t)
	r.faultyPlatform()
	const n, most = 400, 100
	r.many(n, func(tx *store.Tx, i int) error {
		m := &trivet.Machine{Meta: trivet.Meta{Name: fmt.Sprintf("m%03d", i), Labels: map[string]string{"all": "yes"}},
			Spec:   trivet.MachineSpec{NICs: []trivet.NIC{{MAC: fmt.Sprintf("52:54:00:00:%02x:%02x", i/256, i%256)}}},
			Status: trivet.MachineStatus{State: trivet.MachineAvailable}}
		if i == n-1 {
			m.Spec.Platform = "good"
		}
		return r.Machines.In(tx).Create(m)
	})
	r.SetSearched(most)
	r.waits("p", trivet.ProvisionSpec{Selector: map[string]string{"all": "yes"}})
	claim := func() { r.must(r.Claim(t.Context(), "default/p")) }
	for claims := 1; ; claims++ {
		claim()
		if len(r.running()) > 0 {
			if claims != n/most {
				t.Errorf("found by claim %d, want %d", claims, n/most)
			}
			break
		}
		if claims == n {
			t.Fatal("the machine that can be used was not found")
		}
	}
	r.wantRunning(fmt.Sprintf("p: m%03d", n-1))

	// Afterwards none can be used, whatever the number of machines.
	r.waits("q", trivet.ProvisionSpec{Selector: map[string]string{"all": "yes"}})
	claim = func() { r.must(r.Claim(t.Context(), "default/q")) }
	claim()
	few := r.allocations(claim)
	r.SetSearched(10 * n)
	claim() // why it waits has changed
	if all := r.allocations(claim); few > all/2 {
		t.Errorf("a claim that reads %d machines costs %.0f allocations, one that reads all costs %.0f", most, few, all)
	}
}
