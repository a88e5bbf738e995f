package fleet_test

import (
	"fmt"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/store"
)

// A search that did not read all machines is no reason to fail.
func TestFailIfNoMachineReadsAll(t *testing.T) {
	r := newAgedRack(t)
	r.faultyPlatform()
	r.upgraded(trivet.CurrentRelease)
	r.write(func(tx *store.Tx) error {
		site, err := r.Sites.In(tx).Get(trivet.SiteName)
		if err != nil {
			return err
		}
		site.Spec.Platform = "bad"
		return r.Sites.In(tx).Put(site)
	})
	const n, most = 20, 10
	all := map[string]string{"all": "yes"}
	r.many(n, func(tx *store.Tx, i int) error {
		return r.Machines.In(tx).Create(&trivet.Machine{Meta: trivet.Meta{Name: fmt.Sprintf("m%03d", i), Labels: all},
			Spec:   trivet.MachineSpec{NICs: []trivet.NIC{{MAC: fmt.Sprintf("52:54:00:00:00:%02x", i)}}},
			Status: trivet.MachineStatus{State: trivet.MachineAvailable}})
	})
	r.SetSearched(most)
	r.waits("p", trivet.ProvisionSpec{Selector: all, IfNoMachine: trivet.NoMachineFail})
	r.must(r.Claim(t.Context(), "default/p"))
	if p := r.provisionNamed("p"); p.Status.State != trivet.ProvisionPending {
		t.Errorf("after half of the machines were read: %+v", p.Status)
	}
	r.SetSearched(10 * n)
	r.must(r.Claim(t.Context(), "default/p"))
	if p := r.provisionNamed("p"); p.Status.State != trivet.ProvisionFailed ||
		p.Status.Failure.Type != trivet.FaultPlatform {
		t.Errorf("after all were read: %+v", p.Status)
	}
}
