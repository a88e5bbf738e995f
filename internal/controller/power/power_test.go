package power

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/bmc"
	"github.com/trivet-project/trivet/internal/bmc/bmctest"
	"github.com/trivet-project/trivet/internal/fleet"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/storetest"
	"github.com/trivet-project/trivet/internal/workflow"
)

// What another head wrote is timed by this head's monotonic clock: the other clock may be minutes off. A new intent
// is carried out at once; one that another head holds is left to that head for as long as it may send, and no longer.
func TestPowerWithClockSkew(t *testing.T) {
	f := fleet.New(storetest.New(t, state.New), "head0")
	for _, off := range []time.Duration{0, 10 * time.Minute, -10 * time.Minute} {
		t.Run(fmt.Sprint("by ", off), func(t *testing.T) {
			there := time.Now().Add(off)
			c := newController(f)
			intent := trivet.PowerIntent{Want: "on", Boot: "network", Until: there.Add(workflow.IntentTimeout)}
			fresh := newPowered(t, f, "fresh", intent)
			c.note("fresh", intent, time.Now())
			mustReconcile(t, c, "fresh", false)
			fresh.mustGet(t, "boot network, on")

			intent.Head, intent.Held = "head1", there.Add(intentHold)
			held := newPowered(t, f, "held", intent)
			c.note("held", intent, time.Now())
			mustReconcile(t, c, "held", true)
			held.mustGet(t, "")
			k := c.intents["held"]
			k.held = k.held.Add(-intentHold - intentRest) // that much later
			c.intents["held"] = k
			mustReconcile(t, c, "held", false)
			held.mustGet(t, "boot network, on")
		})
	}
}

// The head that used a machine's BMC last holds the next intent, too, until it has released the BMC. Were it to leave
// the intent to the head that ranks first, both would wait for each other.
func TestHeadHoldsWhatItUsed(t *testing.T) {
	f := fleet.New(storetest.New(t, state.New), "head0")
	c := newController(f)
	next := trivet.PowerIntent{Want: "cycle", Until: time.Now().Add(workflow.IntentTimeout), Head: "head0"}
	newPowered(t, f, "m", next)
	for _, s := range []struct {
		change func(*trivet.MachineStatus)
		holds  bool
	}{
		{func(*trivet.MachineStatus) {}, true},
		{func(s *trivet.MachineStatus) { s.Intent.Head = "head1" }, false},
		{func(s *trivet.MachineStatus) { s.Intent, s.PowerHead = nil, "head0" }, true},
		{func(s *trivet.MachineStatus) { s.PowerHead = "" }, false},
	} {
		mustChange(t, f, "m", s.change)
		if m, _ := f.Machines.Get("m"); c.Holds("m") != s.holds {
			t.Errorf("with %+v and the BMC of %q, it holds: %t", m.Status.Intent, m.Status.PowerHead, !s.holds)
		}
	}
	if c.Holds("none") {
		t.Error("it holds a machine that does not exist")
	}
}

// An intent ends where the desired state changes meanwhile, and the same head continues with the new intent.
func TestPowerFollowsDesiredState(t *testing.T) {
	f := fleet.New(storetest.New(t, state.New), "head0")
	c := newController(f)
	box := &changing{Box: bmctest.NewBox(), off: func() {
		mustChange(t, f, "m", func(s *trivet.MachineStatus) {
			s.Intent = &trivet.PowerIntent{Want: "off", Until: s.Intent.Until.Add(time.Second), Head: s.Intent.Head}
		})
	}}
	if err := box.Box.SetPower(bmc.On); err != nil {
		t.Fatal(err)
	}
	intent := trivet.PowerIntent{Want: "cycle", Boot: "network", Until: time.Now().Add(workflow.IntentTimeout)}
	m := powered{box.Box}
	putPowered(t, f, "m", intent, box)
	c.note("m", intent, time.Now())
	mustReconcile(t, c, "m", false)
	m.mustGet(t, "on, off")
	mustChange(t, f, "m", func(s *trivet.MachineStatus) { c.note("m", *s.Intent, time.Now()) })
	mustReconcile(t, c, "m", false)
	m.mustGet(t, "") // it is off
	mustChange(t, f, "m", func(s *trivet.MachineStatus) {
		if s.Intent != nil || s.Power != "off" {
			t.Errorf("the record says %+v", s)
		}
		s.PowerHead = "head0"
	})
	mustReconcile(t, c, "m", false)
	mustChange(t, f, "m", func(s *trivet.MachineStatus) {
		if s.PowerHead != "" {
			t.Error("a head that has finished still holds the BMC")
		}
	})
}

// A BMC that answers slowly receives no command after the machine's intent was dropped, as by an agent that came up
// meanwhile and is at work.
func TestDroppedIntentIsNotSent(t *testing.T) {
	f := fleet.New(storetest.New(t, state.New), "head0")
	c := newController(f)
	box := &slow{Box: bmctest.NewBox()}
	if err := box.Box.SetPower(bmc.On); err != nil {
		t.Fatal(err)
	}
	intent := trivet.PowerIntent{Want: "cycle", Boot: "network", Until: time.Now().Add(workflow.IntentTimeout)}
	putPowered(t, f, "m", intent, box)
	c.note("m", intent, time.Now())
	watch := f.Store.Watch(0, "Machine")
	box.before = func() {
		mustChange(t, f, "m", func(s *trivet.MachineStatus) { s.Intent = nil })
		for {
			events, err := watch.Next(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			for _, e := range events {
				c.Affected(e)
				if e.Record().(*trivet.Machine).Status.Intent == nil {
					return
				}
			}
		}
	}
	mustReconcile(t, c, "m", false)
	powered{box.Box}.mustGet(t, "on")
}

// slow is a machine to which something happens before its BMC answers for the first time.
type slow struct {
	*bmctest.Box
	before func()
	once   sync.Once
}

func (m *slow) Power() bmc.State {
	m.once.Do(m.before)
	return m.Box.Power()
}

// The password is not sent where its secret does not say so, also if that changed after the machine was written.
func TestSecretIsCheckedWhenUsed(t *testing.T) {
	f := fleet.New(storetest.New(t, state.New), "head0")
	c := newController(f)
	intent := trivet.PowerIntent{Want: "on", Boot: "network", Until: time.Now().Add(workflow.IntentTimeout)}
	m := newPowered(t, f, "m", intent)
	c.note("m", intent, time.Now())
	_, err := f.Store.Update(t.Context(), func(tx *store.Tx) error {
		s, err := f.Secrets.In(tx).Get("default/m")
		if err != nil {
			return err
		}
		s.Spec.Addresses = []netip.Prefix{netip.MustParsePrefix("10.0.8.0/24")}
		return f.Secrets.In(tx).Put(s)
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Reconcile(t.Context(), "m")
	if !errors.Is(err, trivet.ErrForbidden) || !strings.Contains(err.Error(), "spec.addresses") {
		t.Errorf("%v", err)
	}
	m.mustGet(t, "")
}

// An intent that this head did not see being written, after a start or a restore, is not carried out, whatever its
// times say: it may be of any age. Nor is one that no head could carry out in time. It is dropped, and where a run still
// waits for the machine, decided again and carried out at once: one that became too old as it waited for the BMCs of
// other machines does not wait again behind all of them.
func TestOldIntentIsDecidedAgain(t *testing.T) {
	f := fleet.New(storetest.New(t, state.New), "head0")
	for name, want := range map[string]string{"waits": "cycle", "releasing": "off", "idle": ""} {
		for _, seen := range []bool{true, false} {
			t.Run(fmt.Sprint(name, ", seen ", seen), func(t *testing.T) {
				c := newController(f)
				old := trivet.PowerIntent{Want: "cycle", Boot: "network", Until: time.Now().Add(time.Hour)}
				m := newPowered(t, f, "m", old)
				switch want {
				case "cycle":
					mustStartRun(t, f, "m")
				case "off":
					mustChange(t, f, "m", func(s *trivet.MachineStatus) { s.State = trivet.MachineReleasing })
				}
				if seen {
					c.note("m", old, time.Now().Add(-2*workflow.IntentTimeout))
				}
				mustReconcile(t, c, "m", false)
				m.mustGet(t, map[string]string{"cycle": "boot network, on"}[want]) // it is off
				now, err := f.Machines.Get("m")
				if err != nil || now.Status.Intent != nil {
					t.Fatalf("the intent is %+v, %v", now.Status.Intent, err)
				}
				if e, err := f.Events.Get(t.Context(), trivet.EventName(now.UID, 1)); err != nil ||
					e.Spec.Reason != trivet.ReasonPowerExpired {
					t.Errorf("the first event is %+v, %v", e, err)
				}
			})
		}
	}
}

// mustStartRun starts a run on a machine.
func mustStartRun(t *testing.T, f *fleet.Fleet, machine string) {
	t.Helper()
	w := &trivet.Workflow{Meta: trivet.Meta{Project: "default", Name: machine + "-1"},
		Spec: trivet.WorkflowSpec{Machine: machine}}
	(&workflow.Run{Spec: &w.Spec, Status: &w.Status}).Start(workflow.Machine{Power: true})
	if _, err := f.Store.Update(t.Context(), func(tx *store.Tx) error { return f.Workflows.In(tx).Put(w) }); err != nil {
		t.Fatal(err)
	}
	mustChange(t, f, machine, func(s *trivet.MachineStatus) { s.Workflow = w.Name })
}

// A BMC that fails until the intent expires is the cause that people read.
func TestFailingBMCIsTheCause(t *testing.T) {
	f := fleet.New(storetest.New(t, state.New), "head0")
	c, reg := newController(f), prometheus.NewRegistry()
	c.Metrics = bmc.NewMetrics(reg)
	intent := trivet.PowerIntent{Want: "cycle", Boot: "network", Until: time.Now().Add(workflow.IntentTimeout)}
	putPowered(t, f, "m", intent, bmctest.NewBox())
	_, err := f.Store.Update(t.Context(), func(tx *store.Tx) error {
		m, err := f.Machines.In(tx).Get("m")
		if err != nil {
			return err
		}
		m.Spec.BMC.Address = "127.0.0.1:1"
		return f.Machines.In(tx).Put(m)
	})
	if err != nil {
		t.Fatal(err)
	}
	c.note("m", intent, time.Now())
	if _, err := c.Reconcile(t.Context(), "m"); !errors.Is(err, trivet.ErrUnavailable) {
		t.Fatalf("%v", err)
	}
	counted := 0.0
	families, _ := reg.Gather()
	for _, v := range families[0].GetMetric() {
		counted += v.GetCounter().GetValue()
	}
	if counted != 1 {
		t.Errorf("%g errors are counted, want 1", counted)
	}
	k := c.intents["m"]
	k.since = k.since.Add(-workflow.IntentTimeout) // that much later
	c.intents["m"] = k
	mustReconcile(t, c, "m", false)
	m, err := f.Machines.Get("m")
	if err != nil || m.Status.Intent != nil {
		t.Fatalf("%+v, %v", m.Status.Intent, err)
	}
	if e, err := f.Events.Get(t.Context(), trivet.EventName(m.UID, m.Status.Events)); err != nil ||
		e.Spec.Reason != trivet.ReasonPowerFailed || !strings.Contains(e.Spec.Message, "127.0.0.1:1") {
		t.Errorf("the last event is %+v, %v", e, err)
	}
}

// A BMC that refuses is recorded at once, and one that fails after some attempts: once for each power request.
func TestFailingBMCIsRecorded(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		want []int64 // events after each attempt
	}{
		"refuses": {trivet.ErrUnauthenticated, []int64{1, 1, 1, 1}},
		"fails":   {trivet.ErrUnavailable, []int64{0, 0, 1, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			f := fleet.New(storetest.New(t, state.New), "head0")
			c := newController(f)
			c.Unseal = func(*trivet.Secret, string) (string, error) { return "", fmt.Errorf("%w: so", tc.err) }
			intent := trivet.PowerIntent{Want: "on", Boot: "network", Until: time.Now().Add(workflow.IntentTimeout)}
			newPowered(t, f, "m", intent)
			c.note("m", intent, time.Now())
			for i, want := range tc.want {
				if _, err := c.Reconcile(t.Context(), "m"); !errors.Is(err, tc.err) {
					t.Fatalf("%v", err)
				}
				m, err := f.Machines.Get("m")
				if err != nil || m.Status.Events != want || m.Status.Intent == nil {
					t.Fatalf("after attempt %d: %+v, %v", i+1, m.Status, err)
				}
			}
			m, _ := f.Machines.Get("m")
			if e, err := f.Events.Get(t.Context(), trivet.EventName(m.UID, 1)); err != nil || !e.Spec.Warning ||
				e.Spec.Reason != trivet.ReasonPowerFailed || !strings.Contains(e.Spec.Message, "tried again") {
				t.Errorf("the event is %+v, %v", e, err)
			}
		})
	}
}

// The log says what a BMC has done.
func TestPowerIsLogged(t *testing.T) {
	f := fleet.New(storetest.New(t, state.New), "head0")
	var log strings.Builder
	c := newController(f)
	c.Log = slog.New(slog.NewTextHandler(&log, nil))
	intent := trivet.PowerIntent{Want: "cycle", Boot: "network", Until: time.Now().Add(workflow.IntentTimeout)}
	newPowered(t, f, "m", intent)
	c.note("m", intent, time.Now())
	mustReconcile(t, c, "m", false)
	off, on := strings.Index(log.String(), "machine=m power=off want=cycle"), strings.Index(log.String(), "machine=m power=on")
	if off < 0 || on < off || strings.Count(log.String(), "\n") != 2 {
		t.Errorf("the log:\n%s", &log)
	}
}

// changing is a machine whose desired state changes while it is powered off.
type changing struct {
	*bmctest.Box
	off func()
}

func (m *changing) SetPower(s bmc.State) error {
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

func mustReconcile(t *testing.T, c *Controller, name string, later bool) {
	t.Helper()
	after, err := c.Reconcile(t.Context(), name)
	if err != nil || later != (after > 0) || after > intentHold+intentRest {
		t.Errorf("%s: queued again after %s, %v", name, after, err)
	}
}

func plain(s *trivet.Secret, key string) (string, error) { return s.Spec.Data[key], nil }

// powered is a machine with a BMC.
type powered struct{ box *bmctest.Box }

// newPowered creates one whose record has an intent. One of that name is replaced.
func newPowered(t *testing.T, f *fleet.Fleet, name string, intent trivet.PowerIntent) powered {
	t.Helper()
	box := bmctest.NewBox()
	putPowered(t, f, name, intent, box)
	return powered{box}
}

func putPowered(t *testing.T, f *fleet.Fleet, name string, intent trivet.PowerIntent, m bmctest.Machine) {
	t.Helper()
	putBehind(t, f, name, intent, bmctest.Redfish(t, m))
}

func putBehind(t *testing.T, f *fleet.Fleet, name string, intent trivet.PowerIntent, cfg bmc.Config) {
	t.Helper()
	_, err := f.Store.Update(t.Context(), func(tx *store.Tx) error {
		secret := &trivet.Secret{Meta: trivet.Meta{Project: "default", Name: name},
			Spec: trivet.SecretSpec{Data: map[string]string{"user": cfg.User, "password": cfg.Password},
				Addresses: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, Insecure: true}}
		if err := f.Secrets.In(tx).Put(secret); err != nil {
			return err
		}
		return f.Machines.In(tx).Put(&trivet.Machine{Meta: trivet.Meta{Name: name},
			Status: trivet.MachineStatus{Intent: &intent},
			Spec:   trivet.MachineSpec{BMC: &trivet.BMC{Protocol: cfg.Protocol, Address: cfg.Address, Secret: name}}})
	})
	if err != nil {
		t.Fatal(err)
	}
}

// mustGet checks the commands that the machine received.
func (p powered) mustGet(t *testing.T, want string) {
	t.Helper()
	if got := strings.Join(p.box.Log(), ", "); got != want {
		t.Errorf("the machine received %q, want %q", got, want)
	}
}

func newController(f *fleet.Fleet) *Controller {
	return New(Config{Fleet: f, Tables: f.Tables, Head: f.Self(), Unseal: plain})
}
