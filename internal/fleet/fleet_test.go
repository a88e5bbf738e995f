package fleet_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/fleet"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/storetest"
	"github.com/trivet-project/trivet/internal/workflow"
)

const mac = "52:54:00:00:00:01"

// rack is a fleet over a real store, with one machine and one template.
type rack struct {
	*testing.T
	*fleet.Fleet
}

func newRack(t *testing.T) *rack {
	t.Helper()
	return rackOn(t, fleet.New(storetest.New(t, state.New), "head0"))
}

func rackOn(t *testing.T, f *fleet.Fleet) *rack {
	t.Helper()
	r := &rack{t, f}
	r.write(func(tx *store.Tx) error {
		return errors.Join(
			r.Machines.In(tx).Create(&trivet.Machine{
				Meta: trivet.Meta{Name: "m1"}, Spec: trivet.MachineSpec{NICs: []trivet.NIC{{MAC: mac}}},
				Status: trivet.MachineStatus{State: trivet.MachineAvailable},
			}),
			r.MACs.In(tx).Create(&trivet.MAC{Meta: trivet.Meta{Name: mac}, Spec: trivet.MACSpec{Machine: "m1"}}),
			r.Templates.In(tx).Create(&trivet.Template{Meta: trivet.Meta{Project: "default", Name: "t"},
				Spec: trivet.TemplateSpec{Actions: []trivet.Action{
					{Name: "work", Use: "seed"}, {Name: "reboot", Use: "reboot"},
				}}}),
		)
	})
	return r
}

func (r *rack) write(do func(tx *store.Tx) error) {
	r.Helper()
	if _, err := r.Store.Update(r.Context(), do); err != nil {
		r.Fatal(err)
	}
}

func (r *rack) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

func (r *rack) provision(name string) {
	r.Helper()
	r.write(func(tx *store.Tx) error {
		return r.Provisions.In(tx).Create(&trivet.Provision{
			Meta: trivet.Meta{Project: "default", Name: name}, Spec: trivet.ProvisionSpec{Template: "t", Machine: "m1"}})
	})
	r.must(r.Claim(r.Context(), "default/"+name))
}

// release deletes a provision.
func (r *rack) release(name string) {
	r.Helper()
	r.write(func(tx *store.Tx) error {
		p, err := r.Provisions.In(tx).Get("default/" + name)
		if err != nil {
			return err
		}
		return errors.Join(r.Release(tx, p), r.Provisions.In(tx).Delete("default/"+name))
	})
}

func (r *rack) machine() *trivet.Machine {
	r.Helper()
	m, err := r.Machines.Get("m1")
	r.must(err)
	return m
}

func (r *rack) hello(key string, epoch int64) error {
	return r.helloWith(key, epoch, trivet.Inventory{})
}

func (r *rack) helloWith(key string, epoch int64, inv trivet.Inventory) error {
	_, err := r.Hello(r.Context(), &trivet.Hello{MAC: mac, Key: key, BootID: "boot-" + key, Inventory: inv},
		auth.BootToken{Machine: "m1", MAC: mac, Epoch: epoch})
	return err
}

func (r *rack) report(epoch int64, key string, reports ...trivet.Report) error {
	return r.Report(r.Context(), &trivet.Sync{Machine: "m1", Epoch: epoch, BootID: "boot-" + key, Reports: reports})
}

// phoneHome sends the token of the machine's run that a seed written under an epoch has.
func (r *rack) phoneHome(epoch int64) error {
	w, err := r.Workflows.Get(trivet.Resolve("", r.machine().Status.Workflow))
	r.must(err)
	return r.PhoneHome(r.Context(), auth.BootToken{Machine: "m1", Epoch: epoch, Run: w.UID}, nil)
}

// events returns the events whose names begin with a prefix.
func (r *rack) events(prefix string) []*trivet.Event {
	list, err := r.Events.Under(r.Context(), prefix, "", 0)
	r.must(err)
	return list
}

// reasons are the machine's events in their order.
func (r *rack) reasons() string {
	events := map[int64]string{}
	for _, e := range r.events(trivet.EventPrefix("machine/m1", r.machine().UID)) {
		events[e.Spec.Seq] = e.Spec.Reason
	}
	var out []string
	for seq := int64(1); seq <= int64(len(events)); seq++ {
		out = append(out, events[seq])
	}
	return strings.Join(out, " ")
}

func TestInstallFromClaimToPhoneHome(t *testing.T) {
	r := newRack(t)
	r.provision("p")
	m := r.machine()
	if m.Status.State != trivet.MachineClaimed || m.Status.Workflow != "p-1" {
		t.Fatalf("after the claim: %+v", m.Status)
	}
	for _, step := range []string{trivet.StepDHCP, trivet.StepScript, trivet.StepKernel, trivet.StepKernel} {
		r.must(r.ReachBootStep(t.Context(), "m1", step, m.Status.Epoch))
	}
	r.must(r.hello("k1", m.Status.Epoch))
	m = r.machine()
	if m.Status.State != trivet.MachineProvisioning || m.Status.AgentKey != "k1" || r.GrantedRun(m) == nil {
		t.Fatalf("after the hello: %+v", m.Status)
	}
	r.must(r.report(m.Status.Epoch, "k1",
		trivet.Report{Seq: 1, Action: "work", Attempt: 1, State: trivet.StepDone},
		trivet.Report{Seq: 2, Action: "reboot", Attempt: 1, State: trivet.StepDone}))
	r.must(r.phoneHome(m.Status.Epoch))
	r.must(r.phoneHome(m.Status.Epoch))
	if m = r.machine(); m.Status.State != trivet.MachineActive {
		t.Errorf("at the end: %+v", m.Status)
	}
	if p, err := r.Provisions.Get("default/p"); err != nil || p.Status.State != trivet.ProvisionSucceeded {
		t.Errorf("the provision: %+v, %v", p, err)
	}
	want := "Claimed BootStepReached BootStepReached BootStepReached Granted ActionDone ActionDone PhonedHome Succeeded"
	if got := r.reasons(); got != want {
		t.Errorf("events\ngot  %s\nwant %s", got, want)
	}
}

func TestTokenIsSpentOnce(t *testing.T) {
	r := newRack(t)
	r.provision("p")
	epoch := r.machine().Status.Epoch
	r.must(r.hello("k1", epoch))
	r.must(r.hello("k1", epoch)) // the response was lost
	if err := r.hello("k2", epoch); !errors.Is(err, trivet.ErrFenced) {
		t.Errorf("a second agent by the same token: %v, want fenced", err)
	}
	if m := r.machine(); m.Status.AgentKey != "k1" || m.Status.Epoch != epoch+1 {
		t.Errorf("the machine: %+v", m.Status)
	}
}

func TestOlderAgentIsRefused(t *testing.T) {
	r := newRack(t)
	r.provision("p")
	r.must(r.hello("k1", 0))
	r.must(r.hello("k2", 1)) // the machine booted again
	late := trivet.Report{Seq: 1, Action: "work", Attempt: 1, State: trivet.StepDone}
	if err := r.report(1, "k1", late); !errors.Is(err, trivet.ErrFenced) {
		t.Errorf("a report of the replaced agent: %v, want fenced", err)
	}
	r.must(r.report(2, "k2", late))
}

func TestUnknownMachinesEnrol(t *testing.T) {
	r := newRack(t)
	const other = "52:54:00:00:00:02"
	hello := &trivet.Hello{MAC: other, Key: "k", BootID: "b", Inventory: trivet.Inventory{Serial: "S1"}}
	name, err := r.Hello(t.Context(), hello, auth.BootToken{Machine: fleet.EnrolledName(other), MAC: other})
	r.must(err)
	m, err := r.Machines.Get(name)
	if err != nil || m.Status.State != trivet.MachineDiscovered || !m.HasMAC(other) ||
		m.Status.Inventory.Serial != "S1" {
		t.Errorf("enrolled %s: %+v, %v", name, m, err)
	}
	r.must(r.Accept(t.Context(), name))
	if m, _ := r.Machines.Get(name); m.Status.State != trivet.MachineAvailable {
		t.Errorf("after it was accepted: %s", m.Status.State)
	}
}

func TestDeadlineCompares(t *testing.T) {
	r := newRack(t)
	r.provision("p")
	w, err := r.Workflows.Get("default/p-1")
	r.must(err)
	wait, _, ok := workflow.CurrentWait(w)
	if !ok || wait.Step != trivet.StepDHCP {
		t.Fatalf("the run waits for %+v", wait)
	}
	r.must(r.Expire(t.Context(), "m1", wait))
	r.must(r.Expire(t.Context(), "m1", wait)) // late: the run went on
	w, _ = r.Workflows.Get("default/p-1")
	if s := w.Status.Step(trivet.StepDHCP); s.Attempt != 2 || s.Elapsed != 0 {
		t.Errorf("after one deadline that was noticed twice: %+v", s)
	}
	wait, _, _ = workflow.CurrentWait(w)
	r.must(r.Expire(t.Context(), "m1", wait))
	m := r.machine()
	if m.Status.State != trivet.MachineQuarantined || !strings.Contains(m.Status.Reason, "no DHCP request") {
		t.Errorf("a machine that never boots: %+v", m.Status)
	}
	if p, _ := r.Provisions.Get("default/p"); p.Status.State != trivet.ProvisionFailed ||
		p.Status.Failure.Type != trivet.FaultMachine {
		t.Errorf("its provision: %+v", p.Status)
	}
}

// A head that holds an intent may be using the BMC while the intent changes or is dropped: it holds the next
// intent too, unless it has released the BMC.
func TestOneHeadControlsABMC(t *testing.T) {
	r := newRack(t)
	r.write(func(tx *store.Tx) error {
		m, err := r.Machines.In(tx).Get("m1")
		if err != nil {
			return err
		}
		m.Spec.BMC = &trivet.BMC{Protocol: "ipmi", Address: "10.0.0.9", Secret: "bmc"}
		return r.Machines.In(tx).Put(m)
	})
	intent := func(name string) trivet.PowerIntent {
		t.Helper()
		r.provision(name)
		i := r.machine().Status.Intent
		if i == nil {
			t.Fatal("there is no power intent")
		}
		return *i
	}
	first := intent("p")
	held, err := r.AcquireIntent(t.Context(), "m1", first, time.Second)
	r.must(err)
	r.release("p")
	if err := r.RecordPower(t.Context(), "m1", held, "off"); !errors.Is(err, trivet.ErrFenced) {
		t.Errorf("the holder of a dropped intent gets %v, want fenced", err)
	}
	if next := intent("p"); next.Head != "head0" {
		t.Errorf("the next intent is held by %q, want head0", next.Head)
	}
	r.release("p")
	r.must(r.ReleaseBMC(t.Context(), "m1"))
	if next := intent("p"); next.Head != "" {
		t.Errorf("an intent after that is held by %q", next.Head)
	}
}

func TestReleaseStopsAgent(t *testing.T) {
	r := newRack(t)
	r.provision("p")
	r.must(r.hello("k1", 0))
	r.release("p")
	if err := r.report(1, "k1", trivet.Report{Seq: 1, Action: "work",
		State: trivet.StepDone}); !errors.Is(err, trivet.ErrFenced) {
		t.Errorf("a report after the release: %v, want fenced", err)
	}
	if m := r.machine(); m.Status.State != trivet.MachineAvailable || m.Status.Provision != "" {
		t.Errorf("the machine: %+v", m.Status)
	}
}

// A provision that is created again gets a new run, beside the kept run of the first.
func TestProvisionIsCreatedAgain(t *testing.T) {
	r := newRack(t)
	for _, run := range []string{"p-1", "p-2", "p-3"} {
		r.provision("p")
		if got := r.machine().Status.Workflow; got != run {
			t.Errorf("the machine's run is %q, want %q", got, run)
		}
		r.release("p")
	}
}

func TestRenderErrorFailsAtClaim(t *testing.T) {
	r := newRack(t)
	r.write(func(tx *store.Tx) error {
		return r.Templates.In(tx).Create(&trivet.Template{Meta: trivet.Meta{Project: "default", Name: "bad"},
			Spec: trivet.TemplateSpec{Actions: []trivet.Action{
				{Name: "a", Use: "image", With: map[string]any{"image": "nope"}}}}})
	})
	r.write(func(tx *store.Tx) error {
		return r.Provisions.In(tx).Create(&trivet.Provision{Meta: trivet.Meta{Project: "default", Name: "p"},
			Spec: trivet.ProvisionSpec{Template: "bad", Machine: "m1"}})
	})
	r.must(r.Claim(t.Context(), "default/p"))
	p, _ := r.Provisions.Get("default/p")
	if p.Status.State != trivet.ProvisionFailed || !strings.Contains(p.Status.Reason, "names image nope, which does not exist") {
		t.Errorf("the provision: %+v", p.Status)
	}
	if m := r.machine(); m.Status.State != trivet.MachineAvailable {
		t.Errorf("the machine is %s", m.Status.State)
	}
}

func TestEventsAreARing(t *testing.T) {
	r := newRack(t)
	for i := range trivet.EventsPerSubject + 20 {
		r.must(r.Quarantine(t.Context(), "m1", fmt.Sprint("reason ", i)))
	}
	if n := len(r.events("")); n != trivet.EventsPerSubject {
		t.Errorf("%d events are kept, want %d", n, trivet.EventsPerSubject)
	}
}

// A machine whose installed system is up is not power-cycled by a request from before that.
func TestActiveMachineIsNotPowerCycled(t *testing.T) {
	r := newRack(t)
	r.provision("p")
	epoch := r.machine().Status.Epoch
	r.must(r.hello("k1", epoch))
	epoch = r.machine().Status.Epoch
	r.must(r.report(epoch, "k1",
		trivet.Report{Seq: 1, Action: "work", Attempt: 1, State: trivet.StepDone},
		trivet.Report{Seq: 2, Action: "reboot", Attempt: 1, State: trivet.StepDone}))
	r.write(func(tx *store.Tx) error { // its first boot took long
		m, err := r.Machines.In(tx).Get("m1")
		if err != nil {
			return err
		}
		m.Status.Intent = &trivet.PowerIntent{Want: "cycle", Boot: "disk", Until: time.Now()}
		return r.Machines.In(tx).Put(m)
	})
	r.must(r.phoneHome(epoch))
	if m := r.machine(); m.Status.State != trivet.MachineActive || m.Status.Intent != nil {
		t.Errorf("the machine is %s with the request %+v", m.Status.State, m.Status.Intent)
	}
}

// The health of disks is recorded once all heads have this release: a head of an earlier one would lose it. The hello
// itself is accepted before.
func TestHealthOfDisksNeedsAllHeads(t *testing.T) {
	inv := trivet.Inventory{Disks: []trivet.Disk{{Name: "/dev/vda"}, {Name: "/dev/sda",
		Health: &trivet.DiskHealth{Failing: "attribute 5"}}}}
	for release, want := range map[trivet.Release]bool{"0.3": false, trivet.CurrentRelease: true} {
		r := newRack(t)
		r.write(func(tx *store.Tx) error {
			return r.Sites.In(tx).Create(&trivet.Site{Meta: trivet.Meta{Name: trivet.SiteName},
				Status: trivet.SiteStatus{ClusterVersion: release}})
		})
		r.must(r.helloWith("k1", r.machine().Status.Epoch, inv))
		got := r.machine().Status.Inventory
		if len(got.Disks) != 2 || got.Disks[1].Name != "/dev/sda" || (got.Disks[1].Health != nil) != want {
			t.Errorf("at %s: %+v", release, got)
		}
		if inv.Disks[1].Health == nil {
			t.Error("the hello was changed")
		}
	}
}
