package fleet_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/fleet"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/storetest"
	"github.com/trivet-project/trivet/internal/workflow"
)

// renameTo renames m1.
func (r *rack) renameTo(name string) error {
	return r.Rename(r.Context(), "m1", trivet.RenameRequest{Name: name}, "alice")
}

// installNamed installs a provision that names m1, whose port has an address.
func (r *rack) installNamed(name string) {
	r.Helper()
	r.write(func(tx *store.Tx) error {
		err := r.Networks.In(tx).Put(&trivet.Network{Meta: trivet.Meta{Name: "lan"},
			Spec: trivet.NetworkSpec{CIDR: netip.MustParsePrefix("10.0.0.0/24")}})
		return errors.Join(err, r.Addresses.In(tx).Put(&trivet.Address{Meta: trivet.Meta{Name: "10.0.0.7"},
			Spec: trivet.AddressSpec{Network: "lan", MAC: mac, Machine: "m1"}}))
	})
	r.provision(name)
	r.must(r.hello("k1", r.machine().Status.Epoch))
	epoch := r.machine().Status.Epoch
	r.must(r.report(epoch, "k1", trivet.Report{Seq: 1, Action: "work", Attempt: 1, State: trivet.StepDone},
		trivet.Report{Seq: 2, Action: "reboot", Attempt: 1, State: trivet.StepDone}))
	r.must(r.phoneHome(epoch))
}

// naming returns where records, other than history, have a name as a value.
func (r *rack) naming(name string) (fields []string) {
	r.Helper()
	for _, kind := range trivet.Kinds {
		records, _ := r.Store.List(kind.Kind, "", "", 0)
		for _, raw := range records {
			var v any
			r.must(json.Unmarshal(raw.JSON(), &v))
			eachText(string(kind.Kind), v, func(field, text string) {
				if text == name {
					fields = append(fields, field)
				}
			})
		}
	}
	slices.Sort(fields)
	return fields
}

func eachText(path string, v any, do func(field, text string)) {
	switch v := v.(type) {
	case string:
		do(path, v)
	case []any:
		for _, e := range v {
			eachText(path, e, do)
		}
	case map[string]any:
		for key, e := range v {
			eachText(path+"."+key, e, do)
		}
	}
}

// A machine that is renamed stays the same one: what refers to it by its name has the new one, in one transaction. Only
// the name of the installed host stays, and what is history.
func TestRenamedMachineStaysTheSame(t *testing.T) {
	r := newRack(t)
	r.releasing("")
	r.installNamed("p")
	r.write(func(tx *store.Tx) error {
		site, err := r.Sites.In(tx).Get(trivet.SiteName)
		r.must(err)
		site.Status.PowerFailures = &trivet.SharedFailures{Machines: []string{"other", "m1"}, Step: trivet.StepPowerOn}
		return r.Sites.In(tx).Put(site)
	})
	before := r.machine()
	revision := r.Store.Revision()
	r.must(r.Rename(t.Context(), "m1", trivet.RenameRequest{Name: "r1-u12", UID: before.UID}, "alice"))
	m, err := r.Machines.Get("r1-u12")
	r.must(err)
	if m.Revision != r.Store.Revision() || m.Revision == revision {
		t.Errorf("the revision is %d, of %d after %d: it is one transaction", m.Revision, r.Store.Revision(), revision)
	}
	want := *before
	want.Name, want.Revision = m.Name, m.Revision
	want.Status.FormerNames, want.Status.Events = []string{"m1"}, before.Status.Events+2
	if got, is := text(t, m), text(t, &want); got != is {
		t.Errorf("the machine is\n%s\nwant\n%s", got, is)
	}
	if _, err := r.Machines.Get("m1"); !errors.Is(err, trivet.ErrNotFound) {
		t.Errorf("the former name: %v", err)
	}
	if got, want := fmt.Sprint(r.naming("m1")), "[Machine.status.formerNames Workflow.spec.seed.hostname]"; got != want {
		t.Errorf("the former name is in %s, want %s", got, want)
	}
	if got, want := fmt.Sprint(r.naming("r1-u12")), "[Address.spec.machine MAC.spec.machine Machine.name "+
		"Provision.spec.machine Provision.status.machine Site.status.powerFailures.machines "+
		"Workflow.spec.machine]"; got != want {
		t.Errorf("the new name is in %s, want %s", got, want)
	}
	events := r.events(trivet.EventPrefix("machine/r1-u12", m.UID))
	slices.SortFunc(events, func(a, b *trivet.Event) int { return int(a.Spec.Seq - b.Spec.Seq) })
	last := events[len(events)-2:]
	if last[0].Spec.Subject != "machine/m1" || !strings.Contains(last[0].Spec.Message, "alice renamed it to r1-u12") ||
		last[1].Spec.Subject != "machine/r1-u12" || !strings.Contains(last[1].Spec.Message, "it was m1 until") {
		t.Errorf("the last events are %+v, %+v", last[0].Spec, last[1].Spec)
	}
	r.must(r.Rename(t.Context(), "m1", trivet.RenameRequest{Name: "r1-u12", UID: before.UID}, "alice")) // again
	if now := r.Store.Revision(); now != m.Revision {
		t.Errorf("a repeated request wrote revision %d after %d", now, m.Revision)
	}
	err = r.Accept(t.Context(), "m1")
	if !errors.Is(err, trivet.ErrNotFound) || !strings.Contains(err.Error(), "it was renamed to r1-u12") {
		t.Errorf("a command about the former name: %v", err)
	}
	r.provisionOf("late", trivet.ProvisionSpec{Template: "t", Machine: "m1"}) // as earlier releases accepted it
	if why := r.provisionNamed("late").Status.Reason; why != "there is no machine m1; it was renamed to r1-u12" {
		t.Errorf("a provision that names the former name: %s", why)
	}
}

func text(t *testing.T, v any) string {
	t.Helper()
	doc, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(doc)
}

// The names that a machine had are kept, the last ones, and one that it gets again is no former one. No other machine
// may have a former name until the machine is deleted.
func TestFormerNames(t *testing.T) {
	r := newRack(t)
	r.releasing("")
	name := "m1"
	rename := func(to string) {
		t.Helper()
		r.must(r.Rename(t.Context(), name, trivet.RenameRequest{Name: to}, "alice"))
		name = to
	}
	rename("a")
	rename("m1")
	if got := fmt.Sprint(r.machine().Status.FormerNames); got != "[a]" {
		t.Errorf("%s", got)
	}
	for i := range trivet.MaxFormerNames + 2 {
		rename(fmt.Sprint("b", i))
	}
	m, err := r.Machines.Get(name)
	r.must(err)
	if got := fmt.Sprint(m.Status.FormerNames); got != "[b8 b7 b6 b5 b4 b3 b2 b1]" {
		t.Errorf("%s", got)
	}
	r.write(func(tx *store.Tx) error {
		return r.Machines.In(tx).Create(&trivet.Machine{Meta: trivet.Meta{Name: "other"}})
	})
	for _, former := range []string{"b8", "b1"} {
		err := r.Rename(t.Context(), "other", trivet.RenameRequest{Name: former}, "alice")
		if !errors.Is(err, trivet.ErrExists) || !strings.Contains(err.Error(), "was the name of machine "+name) {
			t.Errorf("another machine to %s: %v", former, err)
		}
	}
	r.must(r.Rename(t.Context(), "other", trivet.RenameRequest{Name: "b0"}, "alice"))
	r.write(func(tx *store.Tx) error {
		for name, want := range map[string]error{"b8": trivet.ErrExists, "new": nil} {
			if err := r.CheckNewName(tx, name); !errors.Is(err, want) {
				t.Errorf("a new machine %s: %v", name, err)
			}
		}
		return r.Machines.In(tx).Delete(name)
	})
	r.must(r.Rename(t.Context(), "b0", trivet.RenameRequest{Name: "b8"}, "alice"))
}

// A machine that holds data gets no name for which a provision waits, which would overwrite it.
func TestRenameToAnAwaitedName(t *testing.T) {
	r := newRack(t)
	r.releasing("")
	r.write(func(tx *store.Tx) error {
		return r.Provisions.In(tx).Create(&trivet.Provision{Meta: trivet.Meta{Name: "waits", Project: "default"},
			Spec:   trivet.ProvisionSpec{Template: "t", Machine: "r1-u12"},
			Status: trivet.ProvisionStatus{State: trivet.ProvisionPending}})
	})
	hold := func(what string) {
		r.write(func(tx *store.Tx) error {
			m, err := r.Machines.In(tx).Get("m1")
			r.must(err)
			m.Status.HoldsData = what
			return r.Machines.In(tx).Put(m)
		})
	}
	hold("provision db")
	err := r.renameTo("r1-u12")
	if !errors.Is(err, trivet.ErrConflict) || !strings.Contains(err.Error(), "provision waits") {
		t.Errorf("%v", err)
	}
	hold("")
	r.must(r.renameTo("r1-u12"))
}

// A machine is not renamed while what is outside of the store depends on its name, nor to a name that it must not have.
func TestRenameIsRefused(t *testing.T) {
	change := func(do func(*trivet.MachineStatus)) func(*rack) {
		return func(r *rack) {
			r.write(func(tx *store.Tx) error {
				m, err := r.Machines.In(tx).Get("m1")
				r.must(err)
				do(&m.Status)
				return r.Machines.In(tx).Put(m)
			})
		}
	}
	for name, c := range map[string]struct {
		before func(*rack)
		req    trivet.RenameRequest
		want   error
		text   string
	}{
		"no name":    {nil, trivet.RenameRequest{}, trivet.ErrInvalid, "name is missing"},
		"upper case": {nil, trivet.RenameRequest{Name: "R1"}, trivet.ErrInvalid, "use a-z"},
		"its name":   {nil, trivet.RenameRequest{Name: "m1"}, trivet.ErrInvalid, "is its name already"},
		"another machine's": {func(r *rack) {
			r.write(func(tx *store.Tx) error {
				return r.Machines.In(tx).Create(&trivet.Machine{Meta: trivet.Meta{Name: "new"}})
			})
		}, trivet.RenameRequest{Name: "new"}, trivet.ErrExists, "trivet describe machine new"},
		"another UID": {nil, trivet.RenameRequest{Name: "new", UID: "x"}, trivet.ErrNotFound, "UID x"},
		"a run":       {func(r *rack) { r.provision("p") }, trivet.RenameRequest{Name: "new"}, trivet.ErrConflict, "run p-1"},
		"a waiting provision": {func(r *rack) {
			change(func(s *trivet.MachineStatus) { s.State = trivet.MachineQuarantined })(r)
			r.provision("p")
		}, trivet.RenameRequest{Name: "new"}, trivet.ErrConflict, "provision p names it"},
		"a power request": {change(func(s *trivet.MachineStatus) { s.Intent = &trivet.PowerIntent{Want: "off"} }),
			trivet.RenameRequest{Name: "new"}, trivet.ErrConflict, "asked for power off"},
		"a head at its BMC": {change(func(s *trivet.MachineStatus) { s.PowerHead = "head1" }),
			trivet.RenameRequest{Name: "new"}, trivet.ErrConflict, "head head1 may still use its BMC"},
		"an earlier head": {func(r *rack) {
			r.write(func(tx *store.Tx) error {
				site, err := r.Sites.In(tx).Get(trivet.SiteName)
				r.must(err)
				site.Status.ClusterVersion = "0.3"
				return r.Sites.In(tx).Put(site)
			})
		}, trivet.RenameRequest{Name: "new"}, trivet.ErrConflict, "needs release 0.3.1 on all heads"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRack(t)
			r.releasing("")
			if c.before != nil {
				c.before(r)
			}
			revision := r.Store.Revision()
			err := r.Rename(t.Context(), "m1", c.req, "alice")
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
				t.Errorf("%v; want %v, %s", err, c.want, c.text)
			}
			if now := r.Store.Revision(); now != revision || r.machine().Name != "m1" {
				t.Errorf("it wrote revision %d after %d", now, revision)
			}
		})
	}
}

// A provision that failed on a machine is retried on it by its new name, from the beginning and from an action on.
func TestRetryOnRenamedMachine(t *testing.T) {
	for _, req := range []trivet.RetryRequest{{SameMachine: true, Accept: true}, {Step: "reboot", Accept: true},
		{Accept: true}} {
		t.Run(fmt.Sprintf("%+v", req), func(t *testing.T) {
			r := newRack(t)
			r.releasing("")
			r.provision("p")
			r.must(r.hello("k1", r.machine().Status.Epoch))
			epoch := r.machine().Status.Epoch
			r.must(r.report(epoch, "k1", trivet.Report{Seq: 1, Action: "work", Attempt: 1, State: trivet.StepDone},
				trivet.Report{Seq: 2, Action: "reboot", Attempt: 1, State: trivet.StepFailed, Cause: "noise",
					Fault: trivet.FaultMachine, Final: true}))
			r.must(r.renameTo("new"))
			r.must(r.Retry(t.Context(), "default/p", req, "alice"))
			r.must(r.Claim(t.Context(), "default/p"))
			w, err := r.Workflows.Get("default/p-2")
			if err != nil || w.Spec.Machine != "new" {
				t.Fatalf("the next run: %+v, %v", w, err)
			}
			m, err := r.Machines.Get("new")
			if err != nil || m.Status.Workflow != "p-2" || m.Status.State != trivet.MachineClaimed {
				t.Errorf("the machine: %+v, %v", m, err)
			}
		})
	}
}

// Of a renaming and a claim at the same time, at two heads, one is first: then the other one finds what that left.
func TestRenameAndClaimAtTheSameTime(t *testing.T) {
	member := storetest.Member(t)
	r := rackOn(t, fleet.New(storetest.On(t, member, store.Options{}, state.New), "head0"))
	other := fleet.New(storetest.On(t, member, store.Options{}, state.New), "head1")
	r.releasing("")
	name := "m1"
	for i := range 20 {
		p := fmt.Sprint("p", i)
		r.write(func(tx *store.Tx) error {
			m, err := r.Machines.In(tx).Get(name)
			r.must(err)
			m.Labels = map[string]string{"pool": "a"}
			return errors.Join(r.Machines.In(tx).Put(m), r.Provisions.In(tx).Create(&trivet.Provision{
				Meta: trivet.Meta{Project: "default", Name: p},
				Spec: trivet.ProvisionSpec{Template: "t", Selector: m.Labels}}))
		})
		r.must(other.Store.Sync(t.Context()))
		to := fmt.Sprint("n", i)
		var renamed error
		var both sync.WaitGroup
		both.Go(func() { renamed = other.Rename(t.Context(), name, trivet.RenameRequest{Name: to}, "alice") })
		if err := r.Claim(t.Context(), "default/"+p); err != nil && !errors.Is(err, trivet.ErrConflict) {
			t.Errorf("claim: %v", err)
		}
		both.Wait()
		switch {
		case renamed == nil:
			name = to
		case !errors.Is(renamed, trivet.ErrConflict):
			t.Errorf("rename: %v", renamed)
		}
		r.must(r.Store.Sync(t.Context()))
		r.must(r.Claim(t.Context(), "default/"+p)) // where the renaming was first
		m, err := r.Machines.Get(name)
		r.must(err)
		w, err := r.Workflows.Get("default/" + p + "-1")
		if err != nil || w.Spec.Machine != name || m.Status.Provision != p || !workflow.HasRun(&m.Status) {
			t.Fatalf("round %d: the run %+v, %v; the machine %+v", i, w, err, m)
		}
		if r.Machines.Len() != 1 {
			t.Fatalf("round %d: %d machines", i, r.Machines.Len())
		}
		r.release(p)
	}
}
