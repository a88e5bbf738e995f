package fleet_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/store"
)

// newFollowing returns a rack whose provision a has failed on p1 and may go on with another machine, after a change.
func newFollowing(t *testing.T, change func(r *rack, tx *store.Tx) error) *rack {
	t.Helper()
	r := newRack(t)
	r.pool()
	r.write(func(tx *store.Tx) error {
		site, err := r.Sites.In(tx).Get(trivet.SiteName)
		if err != nil {
			return err
		}
		site.Status.ClusterVersion = trivet.CurrentRelease
		return errors.Join(r.Sites.In(tx).Put(site), change(r, tx))
	})
	r.provisionOf("a", trivet.ProvisionSpec{Template: "t", Selector: map[string]string{"pool": "p"}})
	r.failRunAt("a", trivet.StepPowerOn)
	return r
}

func unchanged(*rack, *store.Tx) error { return nil }

// machineNamed returns a machine of the pool.
func (r *rack) machineNamed(name string) *trivet.Machine {
	r.Helper()
	m, err := r.Machines.Get(name)
	r.must(err)
	return m
}

// holder returns the machine that has an address, "-" for none, or "" where there is no record.
func (r *rack) holder(address string) string {
	r.Helper()
	a, err := r.Addresses.Get(address)
	if errors.Is(err, trivet.ErrNotFound) {
		return ""
	}
	r.must(err)
	if (a.Spec.MAC == "") != (a.Spec.Machine == "") {
		r.Errorf("the address: %+v", a.Spec)
	}
	if a.Spec.Machine == "" {
		return "-"
	}
	return a.Spec.Machine
}

// bmcReports carries out the power intent of a machine.
func (r *rack) bmcReports(machine, power string) {
	r.Helper()
	held, err := r.AcquireIntent(r.Context(), machine, *r.machineNamed(machine).Status.Intent, 0)
	r.must(err)
	r.must(r.RecordPower(r.Context(), machine, held, power))
}

// message returns the message of the only event of a machine with a reason; empty where there is none.
func (r *rack) message(machine, reason string) (message string) {
	r.Helper()
	for _, e := range r.events(trivet.EventPrefix("machine/"+machine, r.machineNamed(machine).UID)) {
		if e.Spec.Reason == reason {
			message += e.Spec.Message
		}
	}
	return message
}

// The address of a machine that failed is no one's once its BMC reports it off, and the next machine's from its claim.
// That one has its own beside it until its run has succeeded.
func TestAddressFollowsTheProvision(t *testing.T) {
	r := newFollowing(t, unchanged)
	p := r.provisionNamed("a")
	if p.Status.WaitsFor != "power p1" || !strings.HasSuffix(p.Status.Reason,
		"; its address 10.0.0.1 moves to the next machine once it is off") {
		t.Errorf("after the failure: %+v", p.Status)
	}
	if intent := r.machineNamed("p1").Status.Intent; intent == nil || intent.Want != "off" {
		t.Fatalf("the failed machine's power intent: %+v", intent)
	}
	r.must(r.Claim(t.Context(), "default/a"))
	if p := r.provisionNamed("a"); p.Status.Machine != "" || r.holder("10.0.0.1") != "p1" {
		t.Errorf("before it is off: %+v", p.Status)
	}
	r.bmcReports("p1", "off")
	if p := r.provisionNamed("a"); p.Status.WaitsFor != "" || r.holder("10.0.0.1") != "-" {
		t.Errorf("when it is off: %+v, and %q has the address", p.Status, r.holder("10.0.0.1"))
	}
	r.must(r.Claim(t.Context(), "default/a"))
	p = r.provisionNamed("a")
	if p.Status.Machine != "p2" || p.Status.Address != "10.0.0.1" || r.holder("10.0.0.1") != "p2" ||
		r.holder("10.0.0.2") != "p2" || p.Status.Spent[0].Address != "10.0.0.1" || p.Status.Spent[0].AddressKept != "" {
		t.Errorf("after the claim: %+v", p.Status)
	}
	if got := r.message("p2", trivet.ReasonAddressMoved); got !=
		"address 10.0.0.1 moved here from p1, which its BMC reports off" {
		t.Errorf("the event: %q", got)
	}
	r.installOn("p2")
	if p := r.provisionNamed("a"); p.Status.State != trivet.ProvisionSucceeded || r.holder("10.0.0.1") != "p2" ||
		r.holder("10.0.0.2") != "" || r.holder("10.0.0.3") != "p3" {
		t.Errorf("after the run: %+v", p.Status)
	}
}

// With its provision the address is deleted that waits for the next machine, and not that of a machine.
func TestReleaseOfAnAddress(t *testing.T) {
	for holder, later := range map[string]func(r *rack){
		"p1": func(*rack) {}, "": func(r *rack) { r.bmcReports("p1", "off") },
	} {
		r := newFollowing(t, unchanged)
		later(r)
		r.release("a")
		if got := r.holder("10.0.0.1"); got != holder {
			t.Errorf("%q has the address; want %q", got, holder)
		}
	}
}

// A provision that ends while it waits for the next machine has no address any more.
func TestAddressOfAProvisionThatEnds(t *testing.T) {
	r := newFollowing(t, unchanged)
	r.bmcReports("p1", "off")
	r.write(func(tx *store.Tx) error {
		p, err := r.Provisions.In(tx).Get("default/a")
		if err != nil {
			return err
		}
		p.Spec.IfNoMachine, p.Spec.Selector = trivet.NoMachineFail, map[string]string{"pool": "none"}
		return r.Provisions.In(tx).Put(p)
	})
	r.must(r.Claim(t.Context(), "default/a"))
	if p := r.provisionNamed("a"); p.Status.State != trivet.ProvisionFailed || r.holder("10.0.0.1") != "" {
		t.Errorf("%q has the address; the provision: %+v", r.holder("10.0.0.1"), p.Status)
	}
}

// installOn lets the run of a machine succeed. Its agent is granted the address that moved.
func (r *rack) installOn(machine string) {
	r.Helper()
	m := r.machineNamed(machine)
	mac := m.Spec.NICs[0].MAC
	r.bmcReports(machine, "off")
	r.bmcReports(machine, "on")
	_, err := r.Hello(r.Context(), &trivet.Hello{MAC: mac, Key: "k", BootID: "b"},
		auth.BootToken{Machine: machine, MAC: mac, Epoch: m.Status.Epoch})
	r.must(err)
	m = r.machineNamed(machine)
	if run := r.GrantedRun(m); run == nil || run.Network.Address != "10.0.0.1/24" || run.Network.MAC != mac {
		r.Fatalf("the run: %+v", run)
	}
	r.must(r.Report(r.Context(), &trivet.Sync{Machine: machine, Epoch: m.Status.Epoch, BootID: "b", Reports: []trivet.Report{
		{Seq: 1, Action: "work", Attempt: 1, State: trivet.StepDone},
		{Seq: 2, Action: "reboot", Attempt: 1, State: trivet.StepDone}}}))
	w, err := r.Workflows.Get(trivet.Resolve("", m.Status.Workflow))
	r.must(err)
	r.must(r.PhoneHome(r.Context(), auth.BootToken{Machine: machine, Epoch: m.Status.Epoch, Run: w.UID}, nil))
}

// Where the failed machine was not reported off, or its address cannot move, it keeps the address, and the next machine
// says why it has another one.
func TestAddressDoesNotFollow(t *testing.T) {
	for name, c := range map[string]struct {
		before func(r *rack, tx *store.Tx) error // the failure
		after  func(r *rack)                     // it
		holder string                            // of the address, in the end
		kept   string
	}{
		"a BMC that does not answer": {unchanged, func(r *rack) {
			held, err := r.AcquireIntent(r.Context(), "p1", *r.machineNamed("p1").Status.Intent, 0)
			r.must(err)
			r.must(r.DropIntent(r.Context(), "p1", held, errors.New("no answer")))
		}, "p1", "its BMC did not report machine p1 off"},
		"an operator powers it on": {unchanged, func(r *rack) {
			r.must(r.Power(r.Context(), "p1", trivet.PowerRequest{Want: "on"}))
			r.bmcReports("p1", "on")
		}, "p1", "its BMC did not report machine p1 off"},
		"no BMC": {func(r *rack, tx *store.Tx) error {
			return r.changeMachine(tx, "p1", func(m *trivet.Machine) { m.Spec.BMC = nil })
		}, func(*rack) {}, "p1", "machine p1 has no BMC that could report it off"},
		"a fixed address": {func(r *rack, tx *store.Tx) error {
			a, err := r.Addresses.In(tx).Get("10.0.0.1")
			if err != nil {
				return err
			}
			a.Spec.Fixed = true
			return r.Addresses.In(tx).Put(a)
		}, func(*rack) {}, "p1", "spec.nics of machine p1 fixes it"},
		"the address was deleted": {unchanged, func(r *rack) {
			r.write(func(tx *store.Tx) error { return r.Addresses.In(tx).Delete("10.0.0.1") })
			r.bmcReports("p1", "off")
		}, "", "it was deleted"},
		"the machine was deleted": {unchanged, func(r *rack) {
			r.write(func(tx *store.Tx) error {
				return errors.Join(r.Machines.In(tx).Delete("p1"), r.Addresses.In(tx).Delete("10.0.0.1"))
			})
		}, "", "machine p1 was not seen off"},
		"the next machine is in another network": {unchanged, func(r *rack) {
			r.bmcReports("p1", "off")
			r.write(func(tx *store.Tx) error {
				a, err := r.Addresses.In(tx).Get("10.0.0.2")
				if err != nil {
					return err
				}
				mac := a.Spec.MAC
				return errors.Join(r.Addresses.In(tx).Delete(a.Name),
					r.Networks.In(tx).Create(&trivet.Network{Meta: trivet.Meta{Name: "other"},
						Spec: trivet.NetworkSpec{CIDR: netip.MustParsePrefix("10.0.1.0/24")}}),
					r.Addresses.In(tx).Create(&trivet.Address{Meta: trivet.Meta{Name: "10.0.1.2"},
						Spec: trivet.AddressSpec{Network: "other", MAC: mac, Machine: "p2"}}))
			})
		}, "", "machine p2 does not boot from network lan by an address that may change"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newFollowing(t, c.before)
			c.after(r)
			for range 2 { // the end of the wait, and the claim
				r.must(r.Claim(t.Context(), "default/a"))
			}
			p := r.provisionNamed("a")
			if p.Status.Machine != "p2" || p.Status.Address == "10.0.0.1" || p.Status.Spent[0].Address != "10.0.0.1" ||
				p.Status.Spent[0].AddressKept != c.kept {
				t.Errorf("after the claim: %+v", p.Status)
			}
			if got := r.holder("10.0.0.1"); got != c.holder {
				t.Errorf("%q has the address, want %q", got, c.holder)
			}
			want := "it does not get the address 10.0.0.1 of p1 but has " + p.Status.Address + ": " + c.kept
			if got := r.message("p2", trivet.ReasonAddressKept); got != want {
				t.Errorf("the event is %q,\nwant %q", got, want)
			}
		})
	}
}

func (r *rack) changeMachine(tx *store.Tx, name string, change func(*trivet.Machine)) error {
	m, err := r.Machines.In(tx).Get(name)
	if err != nil {
		return err
	}
	change(m)
	return r.Machines.In(tx).Put(m)
}

// Before all heads know addresses that no machine has, none moves.
func TestNoAddressMovesBeforeTheRelease(t *testing.T) {
	r := newFollowing(t, func(r *rack, tx *store.Tx) error {
		site, err := r.Sites.In(tx).Get(trivet.SiteName)
		if err != nil {
			return err
		}
		site.Status.ClusterVersion = "0.3"
		return r.Sites.In(tx).Put(site)
	})
	r.must(r.Claim(t.Context(), "default/a"))
	if p := r.provisionNamed("a"); p.Status.Machine != "p2" || p.Status.Address != "10.0.0.2" ||
		r.holder("10.0.0.1") != "p1" || p.Status.Spent[0].Address != "" {
		t.Errorf("the provision: %+v", p.Status)
	}
}
