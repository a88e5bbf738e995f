package powerstate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/bmc"
	"github.com/trivet-project/trivet/internal/bmc/bmctest"
	"github.com/trivet-project/trivet/internal/fleet"
	"github.com/trivet-project/trivet/internal/reconcile"
	"github.com/trivet-project/trivet/internal/reconcile/reconciletest"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/storetest"
)

// site is a fleet whose heads all run this release.
type site struct {
	*testing.T
	*fleet.Fleet
}

func newSite(t *testing.T) site {
	t.Helper()
	s := site{t, fleet.New(storetest.New(t, state.New), "head0")}
	s.write(func(tx *store.Tx) error {
		return s.Sites.In(tx).Put(&trivet.Site{Meta: trivet.Meta{Name: trivet.SiteName},
			Status: trivet.SiteStatus{ClusterVersion: trivet.CurrentRelease}})
	})
	return s
}

func (s site) write(do func(tx *store.Tx) error) {
	s.Helper()
	if _, err := s.Store.Update(s.Context(), do); err != nil {
		s.Fatal(err)
	}
}

// add creates a machine whose power is known as "on".
func (s site) add(name, address string) {
	s.Helper()
	s.write(func(tx *store.Tx) error {
		return s.Machines.In(tx).Create(&trivet.Machine{Meta: trivet.Meta{Name: name},
			Spec:   trivet.MachineSpec{BMC: &trivet.BMC{Protocol: "redfish", Address: address, Secret: "bmc"}},
			Status: trivet.MachineStatus{State: trivet.MachineAvailable, Power: "on"}})
	})
}

func (s site) change(name string, do func(*trivet.Machine)) {
	s.Helper()
	s.write(func(tx *store.Tx) error {
		m, err := s.Machines.In(tx).Get(name)
		if err != nil {
			return err
		}
		do(m)
		return s.Machines.In(tx).Put(m)
	})
}

func (s site) machine(name string) *trivet.Machine {
	s.Helper()
	m, err := s.Machines.Get(name)
	if err != nil {
		s.Fatal(err)
	}
	return m
}

// bmcs answers for the BMCs of all machines.
type bmcs struct {
	power string
	err   error
	reads int
}

func (b *bmcs) read(context.Context, *trivet.Machine) (string, error) {
	b.reads++
	return b.power, b.err
}

func (s site) controller(b *bmcs) *Controller {
	return New(Config{Fleet: s.Fleet, Tables: s.Tables, Read: b.read})
}

// poll has the BMC of a machine read now, whenever its time would come, and returns after how long it is read again.
func (s site) poll(c *Controller, name string) time.Duration {
	s.Helper()
	c.mu.Lock()
	if h := c.reads[name]; h != nil {
		h.next = time.Time{}
	}
	c.mu.Unlock()
	after, err := c.Reconcile(s.Context(), name)
	if err != nil {
		s.Fatal(err)
	}
	return after
}

func TestDeclaration(t *testing.T) {
	s := newSite(t)
	reconciletest.Exact(t, Declaration, func(ctx context.Context, scope *store.Scope, n int) error {
		b := &bmcs{power: "off"}
		name := fmt.Sprint("m", n)
		s.add(name, "10.0.8.1")
		limited := s.Within(scope)
		c := New(Config{Fleet: limited, Tables: limited.Tables, Read: b.read})
		for _, err := range []error{nil, nil, trivet.ErrForbidden} {
			b.err = err
			if c.reads[name] != nil {
				c.reads[name].next = time.Time{}
			}
			if _, err := c.Reconcile(ctx, name); err != nil {
				return err
			}
		}
		if m, err := s.Machines.Get(name); err != nil || m.Status.Power != "off" || m.Status.PowerError == nil {
			return fmt.Errorf("the machine is %+v: %w", m, err)
		}
		return nil
	})
}

// The record follows what happens to the machine and its BMC, and the machine gets no command.
func TestRecordFollowsTheBMC(t *testing.T) {
	s := newSite(t)
	box := bmctest.NewBox()
	service := bmctest.NewService(box)
	cfg := bmctest.Serve(t, service)
	cfg.User, cfg.Password = service.User, service.Password
	s.add("m", cfg.Address)
	var wrong atomic.Bool
	c := New(Config{Fleet: s.Fleet, Tables: s.Tables, Read: func(ctx context.Context, _ *trivet.Machine) (string, error) {
		cfg := cfg
		cfg.Insecure, cfg.Allows = true, func(netip.Addr) bool { return true }
		if wrong.Load() {
			cfg.Password = "wrong"
		}
		client, err := bmc.Open(ctx, cfg)
		if err != nil {
			return "", err
		}
		defer client.Close()
		state, err := client.Power(ctx)
		return string(state), err
	}})
	step := func(what, power string, failed bool) {
		t.Helper()
		s.poll(c, "m")
		if st := s.machine("m").Status; st.Power != power || (st.PowerError != nil) != failed {
			t.Fatalf("%s: power %q, error %+v", what, st.Power, st.PowerError)
		}
	}
	step("seen off once", "on", false)
	step("seen off twice", "off", false)
	wrong.Store(true)
	step("the password is wrong", "off", true)
	wrong.Store(false)
	step("the password is right", "off", false)
	if err := box.SetPower(bmc.On); err != nil { // by the button of the machine
		t.Fatal(err)
	}
	box.Log()
	step("seen on once", "off", false)
	step("seen on twice", "on", false)
	revision := s.machine("m").Revision
	step("still on", "on", false)
	if m := s.machine("m"); m.Revision != revision || m.Status.State != trivet.MachineAvailable {
		t.Errorf("it was written again: %+v", m)
	}
	if log := box.Log(); len(log) > 0 || service.Sessions() != 0 {
		t.Errorf("the machine got %q, and %d sessions are open", log, service.Sessions())
	}
}

// A BMC that fails is read again soon, and then less and less often. Its second failure is recorded, or the first one
// that must repeat itself.
func TestFailuresBackOff(t *testing.T) {
	s := newSite(t)
	b := &bmcs{err: errors.New("no answer")}
	c := s.controller(b)
	s.add("m", "10.0.8.1")
	for i, about := range []time.Duration{recheck, minPeriod, 2 * minPeriod, 4 * minPeriod, maxBackoff, maxBackoff} {
		if after := s.poll(c, "m"); after < about*9/10 || after > about*11/10 {
			t.Errorf("after failure %d it is read in %s; want about %s", i+1, after, about)
		}
		if st := s.machine("m").Status; st.Power != "on" || (st.PowerError != nil) != (i > 0) ||
			st.State != trivet.MachineAvailable || st.Events != 0 {
			t.Errorf("after failure %d: %+v", i+1, st)
		}
	}
	if after, err := c.Reconcile(t.Context(), "m"); err != nil || after < maxBackoff/2 || b.reads != 6 {
		t.Errorf("before its time: again in %s, %v, after %d reads", after, err, b.reads)
	}
	b.err, b.power = nil, "on"
	if after := s.poll(c, "m"); after < minPeriod*9/10 || after > minPeriod*11/10 ||
		s.machine("m").Status.PowerError != nil {
		t.Errorf("when it works again: again in %s, %+v", after, s.machine("m").Status)
	}
	s.add("refused", "10.0.8.2")
	b.err = trivet.ErrUnauthenticated
	s.poll(c, "refused")
	if s.machine("refused").Status.PowerError == nil {
		t.Error("a refusal is not recorded at once")
	}
}

// While a machine has a power request its BMC is not read, and a read that is in progress ends. Afterwards it is read
// soon, as the request may have been dropped half done.
func TestCommandsGoFirst(t *testing.T) {
	s := newSite(t)
	s.add("m", "10.0.8.1")
	reading := make(chan struct{}, 9)
	c := New(Config{Fleet: s.Fleet, Tables: s.Tables, Read: func(ctx context.Context, _ *trivet.Machine) (string, error) {
		reading <- struct{}{}
		<-ctx.Done()
		return "", ctx.Err()
	}})
	watch := s.Store.Watch(0, "Machine")
	var after time.Duration
	var done sync.WaitGroup
	done.Go(func() { after, _ = c.Reconcile(t.Context(), "m") })
	<-reading
	s.change("m", func(m *trivet.Machine) { m.Spec.Rack = "r1" }) // ends nothing
	feed := func(want int) {
		t.Helper()
		for n := 0; n < want; {
			events, err := watch.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range events {
				c.Affected(e)
				n++
			}
		}
	}
	feed(1)
	c.mu.Lock()
	if len(c.reading) != 1 {
		t.Error("the read has ended")
	}
	c.mu.Unlock()
	s.change("m", func(m *trivet.Machine) { m.Status.Intent = &trivet.PowerIntent{Want: "off"} })
	feed(1)
	done.Wait()
	if st := s.machine("m").Status; after < minPeriod || st.PowerError != nil {
		t.Errorf("again in %s, %+v", after, st.PowerError)
	}
	if after := s.poll(c, "m"); after < minPeriod || len(reading) != 0 {
		t.Errorf("during the request: again in %s, %d reads", after, len(reading))
	}
	s.change("m", func(m *trivet.Machine) { m.Status.Intent = nil })
	feed(1)
	if wait, _ := c.due(s.machine("m")); wait < recheck/2 || wait > recheck {
		t.Errorf("after the request it is read in %s", wait)
	}
}

// Which changes of a machine have its BMC read at once.
func TestAffected(t *testing.T) {
	s := newSite(t)
	c := s.controller(&bmcs{power: "on"})
	watch := s.Store.Watch(0, "Machine")
	s.add("m", "10.0.8.1")
	for _, change := range []func(*trivet.Machine){
		func(m *trivet.Machine) { m.Spec.Rack = "r1" },
		func(m *trivet.Machine) { m.Status.Reason = "noise" },
		func(m *trivet.Machine) { m.Spec.BMC.Address = "10.0.8.2" },
		func(m *trivet.Machine) { m.Status.Intent = &trivet.PowerIntent{Want: "on"} },
		func(m *trivet.Machine) { m.Spec.BMC = nil },
	} {
		s.change("m", change)
	}
	got := ""
	for len(got) < 6 {
		events, err := watch.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			got += fmt.Sprint(len(c.Affected(e)))
		}
	}
	if n := c.machines(); got != "100101" || n != 1 {
		t.Errorf("the changes queue it %s; want 100101; %d machines", got, n)
	}
	s.write(func(tx *store.Tx) error { return s.Machines.In(tx).Delete("m") })
	events, err := watch.Next(t.Context())
	if err != nil || len(events) != 1 || len(c.Affected(events[0])) != 1 || c.machines() != 0 {
		t.Errorf("after it was deleted: %d events, %v, %d machines", len(events), err, c.machines())
	}
	if p := periodOf(100_000); p != 2000*time.Second {
		t.Errorf("the BMC of each of 100,000 machines is read in %s", p)
	}
}

// The head that ranks first reads a machine's BMC, and only that one. The error of a BMC that a machine had is removed.
func TestWhatIsNotRead(t *testing.T) {
	s := newSite(t)
	b := &bmcs{power: "off"}
	c := s.controller(b)
	rank := 1
	c.Rank = func(string) int { return rank }
	s.add("m", "10.0.8.1")
	if after := s.poll(c, "m"); after != c.period() || b.reads != 0 {
		t.Errorf("of another head: again in %s, %d reads", after, b.reads)
	}
	rank = 0
	s.change("m", func(m *trivet.Machine) {
		m.Spec.BMC, m.Status.PowerError = nil, &trivet.PowerError{Cause: "BMC 10.0.8.1: no answer"}
	})
	if after := s.poll(c, "m"); after != 0 || b.reads != 0 || s.machine("m").Status.PowerError != nil {
		t.Errorf("without a BMC: again in %s, %d reads, %+v", after, b.reads, s.machine("m").Status)
	}
	if after := s.poll(c, "none"); after != 0 || b.reads != 0 {
		t.Errorf("a machine that is gone: again in %s, %d reads", after, b.reads)
	}
}

// At most maxRetries of the workers read BMCs that have failed, and each read ends in time to try others.
func TestDeadBMCsLeaveWorkers(t *testing.T) {
	s := newSite(t)
	b := &bmcs{err: errors.New("no answer")}
	c := s.controller(b)
	s.add("dead", "10.0.8.1")
	s.add("fresh", "10.0.8.2")
	s.poll(c, "dead")
	for range maxRetries {
		c.retries <- struct{}{}
	}
	if after := s.poll(c, "dead"); after > retryPause*11/10 || b.reads != 1 {
		t.Errorf("without a slot: again in %s, %d reads", after, b.reads)
	}
	if s.poll(c, "fresh"); b.reads != 2 {
		t.Errorf("another machine: %d reads", b.reads)
	}
	<-c.retries
	if s.poll(c, "dead"); b.reads != 3 || len(c.retries) != maxRetries-1 {
		t.Errorf("with a slot: %d reads, %d slots in use", b.reads, len(c.retries))
	}
	if maxRetries > Declaration.Workers/2 {
		t.Errorf("%d of %d workers read BMCs that have failed", maxRetries, Declaration.Workers)
	}
}

// Machines that a head finds are read one after the other over the first period, new ones at once.
func TestFirstReadsAreSpread(t *testing.T) {
	s := newSite(t)
	c := s.controller(&bmcs{})
	const count = 200
	for i := range count {
		s.add(fmt.Sprint("m", i), fmt.Sprint("10.0.9.", i))
	}
	c.Keys()
	later := 0
	for i := range count {
		m := s.machine(fmt.Sprint("m", i))
		if wait, _ := c.due(m); wait > 0 {
			t.Fatalf("a new machine is read in %s", wait)
		}
		c.forget(m.Name)
		m.Created = m.Created.Add(-time.Hour)
		wait, _ := c.due(m)
		if limit := count / startRate * time.Second; wait > limit {
			t.Fatalf("a machine is read first in %s; want %s at most", wait, limit)
		}
		if wait > time.Second {
			later++
		}
	}
	if later < count/2 {
		t.Errorf("%d of %d machines are read at once", count-later, count)
	}
}

// The controller works with the queue: a machine that is created is read, and one that is switched follows.
func TestRun(t *testing.T) {
	s := newSite(t)
	power := &atomic.Value{}
	power.Store("off")
	cfg := Config{Fleet: s.Fleet, Tables: s.Tables, Log: slog.New(slog.DiscardHandler),
		Read: func(context.Context, *trivet.Machine) (string, error) { return power.Load().(string), nil }}
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	done.Go(func() {
		if err := reconcile.Run(ctx, reconcile.Config{Store: s.Store, Log: slog.New(slog.DiscardHandler)}, New(cfg)); err != nil {
			t.Error(err)
		}
	})
	defer done.Wait()
	defer cancel()
	watch := s.Store.Watch(0, "Machine")
	s.write(func(tx *store.Tx) error {
		return s.Machines.In(tx).Create(&trivet.Machine{Meta: trivet.Meta{Name: "m"},
			Spec: trivet.MachineSpec{BMC: &trivet.BMC{Protocol: "ipmi", Address: "10.0.8.1", Secret: "bmc"}}})
	})
	for s.machine("m").Status.Power != "off" {
		if _, err := watch.Next(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}
