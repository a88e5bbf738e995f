package controller

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/bmc"
	"github.com/trivet-project/trivet/internal/bmc/bmctest"
	"github.com/trivet-project/trivet/internal/fleet"
	"github.com/trivet-project/trivet/internal/store"
)

// What another head wrote is timed by this one's monotonic clock: the other one's may be minutes off. A fresh intent is acted on
// at once; one that another head holds is left to it for as long as it may send, and no longer.
func TestPowerByClocksThatDiffer(t *testing.T) {
	f := newFleet(t)
	for _, off := range []time.Duration{0, 10 * time.Minute, -10 * time.Minute} {
		t.Run(fmt.Sprint("by ", off), func(t *testing.T) {
			there := time.Now().Add(off)
			p := powers{fleet: f, unseal: plain, seen: map[string]sight{}}
			intent := trivet.PowerIntent{Want: "on", Boot: "network", Until: there.Add(fleet.IntentLife)}
			fresh := newPowered(t, p.fleet, "fresh", intent)
			mustReconcile(t, &p, "fresh", false)
			fresh.mustHear(t, "boot network, on")

			intent.Head, intent.Held = "head1", there.Add(intentHold)
			held := newPowered(t, p.fleet, "held", intent)
			mustReconcile(t, &p, "held", true)
			held.mustHear(t, "")
			s := p.seen["held"]
			s.held = s.held.Add(-intentHold - intentRest) // that much later
			p.seen["held"] = s
			mustReconcile(t, &p, "held", false)
			held.mustHear(t, "boot network, on")
		})
	}
}

// What a machine was to be told ends where something else is wanted meanwhile, and the same head goes on with that.
func TestPowerFollowsWhatIsWanted(t *testing.T) {
	p := powers{fleet: newFleet(t), unseal: plain, seen: map[string]sight{}}
	box := &moody{Box: bmctest.NewBox(), off: func() {
		mustChange(t, p.fleet, "m", func(s *trivet.MachineStatus) {
			s.Intent = &trivet.PowerIntent{Want: "off", Until: s.Intent.Until.Add(time.Second), Head: s.Intent.Head}
		})
	}}
	if err := box.Box.SetPower(bmc.On); err != nil {
		t.Fatal(err)
	}
	intent := trivet.PowerIntent{Want: "cycle", Boot: "network", Until: time.Now().Add(fleet.IntentLife)}
	m := powered{box.Box}
	putPowered(t, p.fleet, "m", intent, box)
	mustReconcile(t, &p, "m", false)
	m.mustHear(t, "on, off")
	mustReconcile(t, &p, "m", false)
	m.mustHear(t, "") // it is off
	mustChange(t, p.fleet, "m", func(s *trivet.MachineStatus) {
		if s.Intent != nil || s.Power != "off" {
			t.Errorf("the record says %+v", s)
		}
		s.PowerHead = "head0"
	})
	mustReconcile(t, &p, "m", false)
	mustChange(t, p.fleet, "m", func(s *trivet.MachineStatus) {
		if s.PowerHead != "" {
			t.Error("a head that has no more to say still has the BMC")
		}
	})
}

// moody is a machine for which something else is wanted at the moment it is told to go off.
type moody struct {
	*bmctest.Box
	off func()
}

func (m *moody) SetPower(s bmc.State) error {
	if s == bmc.Off {
		m.off()
	}
	return m.Box.SetPower(s)
}

func mustChange(t *testing.T, f *fleet.Fleet, machine string, how func(*trivet.MachineStatus)) {
	t.Helper()
	_, err := f.Store.Update(t.Context(), func(tx *store.Tx) error {
		m, err := f.Machines.In(tx).Get(machine)
		if err != nil {
			return err
		}
		how(&m.Status)
		return f.Machines.In(tx).Put(m)
	})
	if err != nil {
		t.Error(err)
	}
}

func mustReconcile(t *testing.T, p *powers, name string, later bool) {
	t.Helper()
	again, err := p.reconcile(t.Context(), name)
	if err != nil || later != (again > 0) || again > intentHold+intentRest {
		t.Errorf("%s: to be looked at again after %s, %v", name, again, err)
	}
}

func plain(s *trivet.Secret, key string) (string, error) { return s.Spec.Data[key], nil }

// powered is a machine with a BMC.
type powered struct{ box *bmctest.Box }

// newPowered makes one whose record has an intent. One of that name is replaced.
func newPowered(t *testing.T, f *fleet.Fleet, name string, intent trivet.PowerIntent) powered {
	t.Helper()
	box := bmctest.NewBox()
	putPowered(t, f, name, intent, box)
	return powered{box}
}

func putPowered(t *testing.T, f *fleet.Fleet, name string, intent trivet.PowerIntent, m bmctest.Machine) {
	t.Helper()
	cfg := bmctest.Redfish(t, m)
	_, err := f.Store.Update(t.Context(), func(tx *store.Tx) error {
		secret := &trivet.Secret{Meta: trivet.Meta{Name: name}, Spec: trivet.SecretSpec{Data: map[string]string{"user": cfg.User, "password": cfg.Password}}}
		if err := f.Secrets.In(tx).Put(secret); err != nil {
			return err
		}
		return f.Machines.In(tx).Put(&trivet.Machine{Meta: trivet.Meta{Name: name}, Status: trivet.MachineStatus{Intent: &intent},
			Spec: trivet.MachineSpec{BMC: &trivet.BMC{Protocol: cfg.Protocol, Address: cfg.Address, Secret: name, Insecure: true}}})
	})
	if err != nil {
		t.Fatal(err)
	}
}

// mustHear checks what the machine was told.
func (p powered) mustHear(t *testing.T, want string) {
	t.Helper()
	if got := strings.Join(p.box.Log(), ", "); got != want {
		t.Errorf("the machine was told %q, want %q", got, want)
	}
}
