package fleet_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/workflow"
)

// newServed returns a rack whose provision a is served by p1, with address 10.0.0.1, after a change of the rack.
func newServed(t *testing.T, change func(r *rack, tx *store.Tx) error) *rack {
	t.Helper()
	r := newRack(t)
	r.pool()
	r.upgraded(trivet.CurrentRelease)
	r.provisionOf("a", trivet.ProvisionSpec{Template: "t", Selector: map[string]string{"pool": "p"}})
	r.installOn("p1")
	if p := r.provisionNamed("a"); p.Status.State != trivet.ProvisionSucceeded || p.Status.Machine != "p1" {
		t.Fatalf("the provision: %+v", p.Status)
	}
	r.write(func(tx *store.Tx) error { return change(r, tx) })
	return r
}

func (r *rack) replace(name string, req trivet.ReplaceRequest) error {
	return r.Replace(r.Context(), "default/"+name, req, "alice")
}

// The machine of a provision is quarantined and powered off, and nothing counts against it. Once it is off, the provision
// claims another one, which gets its address.
func TestReplace(t *testing.T) {
	r := newServed(t, unchanged)
	before := r.machineNamed("p1").Status
	r.must(r.replace("a", trivet.ReplaceRequest{Reason: "fan is loud", Machine: "p1"}))
	p, m := r.provisionNamed("a"), r.machineNamed("p1")
	if p.Status.State != trivet.ProvisionPending || p.Status.WaitsFor != "power p1" || p.Status.Machine != "" ||
		p.Status.Reason != "alice replaces p1; its address 10.0.0.1 moves to the next machine once it is off" ||
		!p.Status.Ended.IsZero() || p.Status.Replaced.By != "alice" || p.Status.Replaced.Reason != "fan is loud" {
		t.Errorf("the provision: %+v", p.Status)
	}
	const why = "alice replaced it as the machine of provision a: fan is loud"
	if m.Status.State != trivet.MachineQuarantined || m.Status.Former != trivet.MachineReleasing ||
		m.Status.Reason != why || m.Status.Provision != "" || m.Status.Epoch == before.Epoch ||
		m.Status.Intent == nil || m.Status.Intent.Want != "off" || m.Status.Reputation != nil {
		t.Errorf("the machine: %+v", m.Status)
	}
	if got := r.message("p1", trivet.ReasonReplaced); got != why+"; the provision goes on with another machine" {
		t.Errorf("the event: %q", got)
	}
	r.must(r.Claim(t.Context(), "default/a"))
	if p := r.provisionNamed("a"); p.Status.Machine != "" || r.holder("10.0.0.1") != "p1" {
		t.Errorf("before it is off: %+v", p.Status)
	}
	r.bmcReports("p1", "off")
	r.must(r.Claim(t.Context(), "default/a"))
	p = r.provisionNamed("a")
	if p.Status.Machine == "" || p.Status.Machine == "p1" || p.Status.Address != "10.0.0.1" ||
		r.holder("10.0.0.1") != p.Status.Machine || p.Status.Attempts != 2 {
		t.Fatalf("after the claim: %+v", p.Status)
	}
	if got := r.message(p.Status.Machine, trivet.ReasonClaimed); !strings.HasSuffix(got,
		", instead of p1, which alice replaced") {
		t.Errorf("the event: %q", got)
	}
	r.installOn(p.Status.Machine)
	if p := r.provisionNamed("a"); p.Status.State != trivet.ProvisionSucceeded || p.Status.Spent != nil {
		t.Errorf("after the run: %+v", p.Status)
	}
	r.must(r.Accept(t.Context(), "p1"))
	if m := r.machineNamed("p1"); m.Status.State != trivet.MachineAvailable {
		t.Errorf("the machine after it was accepted: %+v", m.Status)
	}
}

// After a replacement the provision has its alternatives again, and the machine that was replaced is not one of them.
func TestFailureAfterReplace(t *testing.T) {
	r := newServed(t, unchanged)
	r.must(r.replace("a", trivet.ReplaceRequest{}))
	r.bmcReports("p1", "off")
	r.must(r.Claim(t.Context(), "default/a"))
	first, _ := r.failRunAt("a", trivet.StepPowerOn)
	p := r.provisionNamed("a")
	if p.Status.State != trivet.ProvisionPending || len(p.Status.Spent) != 1 || p.Status.Spent[0].Machine != first.Name ||
		p.Status.Spent[0].Address != "10.0.0.1" || p.Status.WaitsFor != "power "+first.Name {
		t.Fatalf("after the first failure: %+v", p.Status)
	}
	r.bmcReports(first.Name, "off")
	r.must(r.Accept(t.Context(), "p1"))
	r.must(r.Claim(t.Context(), "default/a"))
	second, p := r.failRunAt("a", trivet.StepPowerOn)
	if p.Status.State != trivet.ProvisionFailed || second.Name == "p1" || second.Name == first.Name {
		t.Errorf("after the second failure, on %s: %+v", second.Name, p.Status)
	}
	r.must(r.Retry(t.Context(), "default/a", trivet.RetryRequest{}, "alice"))
	if p := r.provisionNamed("a"); p.Status.Replaced != nil || p.Status.Spent != nil {
		t.Errorf("after a retry: %+v", p.Status)
	}
}

// A machine without a BMC goes on, and keeps its address.
func TestReplaceWithoutBMC(t *testing.T) {
	r := newServed(t, func(r *rack, tx *store.Tx) error {
		return r.changeMachine(tx, "p1", func(m *trivet.Machine) { m.Spec.BMC = nil })
	})
	r.must(r.replace("a", trivet.ReplaceRequest{}))
	r.must(r.Claim(t.Context(), "default/a"))
	p := r.provisionNamed("a")
	if p.Status.Machine == "" || p.Status.Address == "10.0.0.1" || r.holder("10.0.0.1") != "p1" ||
		p.Status.Replaced.AddressKept != "machine p1 has no BMC that could report it off" {
		t.Errorf("the provision: %+v", p.Status)
	}
}

// A machine that an operator has quarantined while it serves can be replaced.
func TestReplaceOfQuarantined(t *testing.T) {
	r := newServed(t, unchanged)
	r.must(r.Quarantine(t.Context(), "p1", "noise"))
	r.must(r.replace("a", trivet.ReplaceRequest{}))
	if m := r.machineNamed("p1"); workflow.StateOf(&m.Status) != trivet.MachineReleasing || m.Status.Intent == nil {
		t.Errorf("the machine: %+v", m.Status)
	}
}

// What cannot be replaced is refused, and nothing is changed.
func TestReplaceIsRefused(t *testing.T) {
	provision := func(r *rack, tx *store.Tx, change func(*trivet.Provision)) error {
		p, err := r.Provisions.In(tx).Get("default/a")
		if err != nil {
			return err
		}
		change(p)
		return r.Provisions.In(tx).Put(p)
	}
	cordonAll := func(r *rack, tx *store.Tx) error {
		for i := 2; i <= 9; i++ {
			if err := r.changeMachine(tx, fmt.Sprint("p", i), func(m *trivet.Machine) { m.Spec.Cordoned = true }); err != nil {
				return err
			}
		}
		return nil
	}
	for name, c := range map[string]struct {
		before func(r *rack, tx *store.Tx) error
		req    trivet.ReplaceRequest
		want   string
	}{
		"another machine serves it": {unchanged, trivet.ReplaceRequest{Machine: "p2"}, "machine p1 serves it, and not p2"},
		"a long reason": {unchanged, trivet.ReplaceRequest{Reason: strings.Repeat("x", 257)},
			"the reason has 257 bytes; the maximum is 256"},
		"no machine is free": {cordonAll, trivet.ReplaceRequest{}, "no machine is free: 1 active, 8 cordoned (to stop its " +
			"machine nevertheless, and wait for another one, add --wait)"},
		"its template was deleted": {func(r *rack, tx *store.Tx) error { return r.Templates.In(tx).Delete("default/t") },
			trivet.ReplaceRequest{}, "it cannot be installed again: get template t: not found"},
		"it failed": {func(r *rack, tx *store.Tx) error {
			return provision(r, tx, func(p *trivet.Provision) { p.Status.State = trivet.ProvisionFailed })
		}, trivet.ReplaceRequest{}, "it has failed, and no machine serves it (give it another run: trivet retry a)"},
		"it waits": {func(r *rack, tx *store.Tx) error {
			return provision(r, tx, func(p *trivet.Provision) { p.Status.State = trivet.ProvisionPending })
		}, trivet.ReplaceRequest{}, "it has no machine: it waits for one"},
		"it runs": {func(r *rack, tx *store.Tx) error {
			return provision(r, tx, func(p *trivet.Provision) { p.Status.State = trivet.ProvisionRunning })
		}, trivet.ReplaceRequest{}, "its run on p1 goes on (to use another machine: trivet quarantine p1"},
		"it is frozen": {func(r *rack, tx *store.Tx) error {
			return provision(r, tx, func(p *trivet.Provision) { p.Status.State = trivet.ProvisionFrozen })
		}, trivet.ReplaceRequest{}, "it is frozen since the cluster was recovered (decide first: trivet recover resolve a)"},
		"the machine is gone": {func(r *rack, tx *store.Tx) error { return r.Machines.In(tx).Delete("p1") },
			trivet.ReplaceRequest{}, "the machine of its last run is not known"},
		"older heads": {func(r *rack, tx *store.Tx) error {
			site, err := r.Sites.In(tx).Get(trivet.SiteName)
			if err != nil {
				return err
			}
			site.Status.ClusterVersion = "0.3"
			return r.Sites.In(tx).Put(site)
		}, trivet.ReplaceRequest{}, "status.replaced need release 0.3.1 on all heads"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newServed(t, c.before)
			revision := r.Store.Revision()
			if err := r.replace("a", c.req); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v\nwant %s", err, c.want)
			}
			if r.Store.Revision() != revision {
				t.Error("it was refused, and has changed something")
			}
		})
	}
	r := newServed(t, cordonAll)
	r.must(r.replace("a", trivet.ReplaceRequest{Wait: true}))
	r.bmcReports("p1", "off")
	r.must(r.Claim(t.Context(), "default/a"))
	if p := r.provisionNamed("a"); p.Status.State != trivet.ProvisionPending ||
		p.Status.Reason != "no machine is free: 8 cordoned, 1 quarantined" {
		t.Errorf("it waits: %+v", p.Status)
	}
	if err := r.replace("a", trivet.ReplaceRequest{}); !errors.Is(err, trivet.ErrConflict) {
		t.Errorf("again: %v", err)
	}
}

// A member is replaced by its own name, and its provision counts it as one that waits.
func TestReplaceOfMember(t *testing.T) {
	r := newRack(t)
	r.pool()
	r.upgraded(trivet.CurrentRelease)
	two := 2
	r.write(func(tx *store.Tx) error {
		return r.Provisions.In(tx).Create(&trivet.Provision{Meta: trivet.Meta{Project: "default", Name: "web"},
			Spec: trivet.ProvisionSpec{Template: "t", Count: &two, Selector: map[string]string{"pool": "p"}}})
	})
	if _, err := r.SettleMembers(t.Context(), "default/web"); err != nil {
		t.Fatal(err)
	}
	r.must(r.Claim(t.Context(), "default/web-1"))
	r.installOn("p1")
	if err := r.replace("web", trivet.ReplaceRequest{}); err == nil || !strings.Contains(err.Error(), "web-1") {
		t.Errorf("of all members: %v", err)
	}
	r.must(r.replace("web-1", trivet.ReplaceRequest{}))
	if p := r.provisionNamed("web"); p.Status.Members.Waiting != 2 || p.Status.Members.Succeeded != 0 {
		t.Errorf("the counts: %+v", p.Status.Members)
	}
}
