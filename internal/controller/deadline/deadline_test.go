package deadline

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/fleet"
	"github.com/trivet-project/trivet/internal/reconcile/reconciletest"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/storetest"
	"github.com/trivet-project/trivet/internal/uptime"
	"github.com/trivet-project/trivet/internal/workflow"
)

// claim creates a machine without a BMC, and starts a run on it that has one attempt for each step.
func claim(ctx context.Context, f *fleet.Fleet, name string) error {
	limits := map[string]trivet.Limit{trivet.StepDHCP: {Timeout: trivet.Duration(time.Minute), Retries: new(0)}}
	_, err := f.Store.Update(ctx, func(tx *store.Tx) error {
		return errors.Join(
			f.Templates.In(tx).Put(&trivet.Template{Meta: trivet.Meta{Project: "default", Name: "t"},
				Spec: trivet.TemplateSpec{
					Limits: limits, Actions: []trivet.Action{{Name: "work", Use: "noop"}}}}),
			f.Machines.In(tx).Put(&trivet.Machine{Meta: trivet.Meta{Name: name},
				Spec:   trivet.MachineSpec{NICs: []trivet.NIC{{MAC: "52:54:00:00:00:01"}}},
				Status: trivet.MachineStatus{State: trivet.MachineAvailable}}),
			f.Provisions.In(tx).Put(&trivet.Provision{Meta: trivet.Meta{Project: "default", Name: name},
				Spec: trivet.ProvisionSpec{Template: "t", Machine: name}}),
		)
	})
	return errors.Join(err, f.Claim(ctx, "default/"+name))
}

// head is one head's controller, whose time passes as the test says.
type head struct {
	*Controller
	now   time.Time
	clock uptime.Clock
	agent time.Duration // when its agent was last heard
	other *head         // the one that answers it; nil: none
	asks  int           // how often it asked
	slow  time.Duration // how long the others take to answer it
}

// Counted implements [Others].
func (h *head) Counted(context.Context) uptime.Checkpoint {
	if h.asks++; h.other == nil {
		return nil
	}
	h.advance(h.slow)
	h.other.advance(h.slow)
	return h.other.counted()
}

func newHead(f *fleet.Fleet) *head { return newHeadNamed(f, "head0") }

func newHeadNamed(f *fleet.Fleet, name string) *head { return newHeadAmong(f, name, nil) }

// newHeadAmong returns a head that starts while another one, or none, runs.
func newHeadAmong(f *fleet.Fleet, name string, other *head) *head {
	h := &head{now: time.Unix(1, 0), other: other}
	h.clock.Advance(h.now, true)
	h.Controller = New(Config{Fleet: f, Presence: h, Clock: h, Tables: f.Tables, Rank: func(string) int { return 0 },
		Saved: state.NewCheckpoints(f.Store, name), Others: h})
	if err := h.checkpoint(context.Background()); err != nil {
		panic(err)
	}
	return h
}

// Read implements [Clock].
func (h *head) Read() uptime.Clock { return h.clock }

// Silence implements [Presence].
func (h *head) Silence(string, int64) time.Duration { return h.clock.Counted() - h.agent }

// advance lets time pass in which the wait could have ended.
func (h *head) advance(d time.Duration) {
	for range d / uptime.Interval {
		h.now = h.now.Add(uptime.Interval)
		h.clock.Advance(h.now, true)
	}
}

// attend reconciles a run while time passes, as its agent sends heartbeats.
func (h *head) attend(t *testing.T, run string, d time.Duration) {
	t.Helper()
	for range d / (10 * time.Second) {
		h.advance(10 * time.Second)
		h.agent = h.clock.Counted()
		if _, err := h.Reconcile(t.Context(), run); err != nil {
			t.Fatal(err)
		}
	}
}

// failing creates a machine, and starts a run on it that has reached the step, with one attempt for each step. Its
// network, platform and image are its own.
func failing(ctx context.Context, f *fleet.Fleet, name, step string) error {
	digest := "sha256:" + strings.Repeat("0", 64)
	blob := trivet.BlobRef{Digest: digest, Bytes: 1, Chunks: digest}
	limit, limits := trivet.Limit{Timeout: trivet.Duration(time.Minute), Retries: new(0)}, map[string]trivet.Limit{}
	for _, s := range trivet.BootSteps {
		limits[s] = limit
	}
	m := &trivet.Machine{Meta: trivet.Meta{Name: name}, Spec: trivet.MachineSpec{Platform: name,
		NICs: []trivet.NIC{{MAC: mac}}}, Status: trivet.MachineStatus{State: trivet.MachineAvailable}}
	if step == trivet.StepPowerOn {
		m.Spec.BMC = &trivet.BMC{Protocol: "ipmi", Address: "10.0.0.9", Secret: "bmc"}
	}
	_, err := f.Store.Update(ctx, func(tx *store.Tx) error {
		return errors.Join(
			f.Sites.In(tx).Put(&trivet.Site{Meta: trivet.Meta{Name: trivet.SiteName}}),
			f.Networks.In(tx).Put(&trivet.Network{Meta: trivet.Meta{Name: name},
				Spec: trivet.NetworkSpec{CIDR: netip.MustParsePrefix("10.0.0.0/24")}}),
			f.Addresses.In(tx).Put(&trivet.Address{Meta: trivet.Meta{Name: "10.0.0.1"},
				Spec: trivet.AddressSpec{Network: name, MAC: mac, Machine: name}}),
			f.Platforms.In(tx).Put(&trivet.Platform{Meta: trivet.Meta{Name: name},
				Spec: trivet.PlatformSpec{Arch: "amd64", Kernel: blob, Initrd: blob}}),
			f.Images.In(tx).Put(&trivet.Image{Meta: trivet.Meta{Project: "default", Name: name},
				Spec: trivet.ImageSpec{Format: "raw", Blob: blob}}),
			f.Templates.In(tx).Put(&trivet.Template{Meta: trivet.Meta{Project: "default", Name: "t"},
				Spec: trivet.TemplateSpec{
					Limits: limits, Actions: []trivet.Action{
						{Name: "image", Use: "image", With: map[string]any{"image": name}},
						{Name: "boot", Use: "reboot"}}}}),
			f.MACs.In(tx).Put(&trivet.MAC{Meta: trivet.Meta{Name: mac}, Spec: trivet.MACSpec{Machine: name}}),
			f.Machines.In(tx).Put(m),
			f.Provisions.In(tx).Put(&trivet.Provision{Meta: trivet.Meta{Project: "default", Name: name},
				Spec: trivet.ProvisionSpec{Template: "t", Machine: name}}),
		)
	})
	return errors.Join(err, f.Claim(ctx, "default/"+name), reach(ctx, f, name, step))
}

const mac = "52:54:00:00:00:01"

// reach lets the machine do what it does before a step.
func reach(ctx context.Context, f *fleet.Fleet, name, step string) error {
	switch step {
	case trivet.StepPowerOn:
		m, err := f.Machines.Get(name)
		if err == nil {
			_, err = f.AcquireIntent(ctx, name, *m.Status.Intent, time.Minute)
		}
		return err
	case trivet.StepHello:
		return f.ReachBootStep(ctx, name, trivet.StepKernel, 0)
	case trivet.StepFirstBoot:
		m := &trivet.Hello{MAC: mac, Key: "k", BootID: "b"}
		if _, err := f.Hello(ctx, m, auth.BootToken{Machine: name, MAC: mac}); err != nil {
			return err
		}
		return f.Report(ctx, &trivet.Sync{Machine: name, Epoch: 1, BootID: "b", Reports: []trivet.Report{
			{Seq: 1, Action: "image", Attempt: 1, State: trivet.StepDone},
			{Seq: 2, Action: "boot", Attempt: 1, State: trivet.StepDone}}})
	}
	return nil
}

func TestDeclaration(t *testing.T) {
	f := fleet.New(storetest.New(t, state.New), "head0")
	steps := []string{trivet.StepPowerOn, trivet.StepDHCP, trivet.StepHello, trivet.StepFirstBoot}
	reconciletest.Exact(t, Declaration, func(ctx context.Context, scope *store.Scope, n int) error {
		for _, step := range steps {
			name := fmt.Sprint(step, n)
			if err := failing(t.Context(), f, name, step); err != nil {
				return err
			}
			c := newHead(f.Within(scope))
			for _, d := range []time.Duration{0, 40 * time.Second, 40 * time.Second} {
				c.advance(d)
				if _, err := c.Reconcile(ctx, "default/"+name+"-1"); err != nil {
					return err
				}
			}
			if p, err := f.Provisions.Get("default/" + name); err != nil || p.Status.State != trivet.ProvisionFailed {
				return fmt.Errorf("the provision is %+v: %w", p, err)
			}
		}
		return nil
	})
}

// create writes a machine, and a provision of it by a template of some actions.
func create(t *testing.T, f *fleet.Fleet, m *trivet.Machine, actions ...trivet.Action) {
	t.Helper()
	m.Name, m.Status.State, m.Spec.NICs = "m1", trivet.MachineAvailable, []trivet.NIC{{MAC: "52:54:00:00:00:01"}}
	_, err := f.Store.Update(t.Context(), func(tx *store.Tx) error {
		return errors.Join(
			f.Templates.In(tx).Put(&trivet.Template{Meta: trivet.Meta{Project: "default", Name: "t"},
				Spec: trivet.TemplateSpec{Actions: actions}}),
			f.Machines.In(tx).Put(m),
			f.Provisions.In(tx).Put(&trivet.Provision{Meta: trivet.Meta{Project: "default", Name: "p"},
				Spec: trivet.ProvisionSpec{Template: "t", Machine: "m1"}}),
		)
	})
	if err := errors.Join(err, f.Claim(t.Context(), "default/p")); err != nil {
		t.Fatal(err)
	}
	if p, err := f.Provisions.Get("default/p"); err != nil || p.Status.State != trivet.ProvisionRunning {
		t.Fatalf("the provision is %+v, %v", p, err)
	}
}

// bmc is a machine's, which no test uses.
func bmc() *trivet.BMC { return &trivet.BMC{Protocol: "ipmi", Address: "10.0.0.9", Secret: "bmc"} }

// An agent that waits between two attempts is not lost, however long the backoff is. One that does not go on after
// it is.
func TestBackoffIsNotALostAgent(t *testing.T) {
	f := fleet.New(storetest.New(t, state.New), "head0")
	f.AgentUp = func(string, int64) bool { return true }
	create(t, f, &trivet.Machine{Status: trivet.MachineStatus{Epoch: 1, AgentKey: "key"}}, trivet.Action{
		Name: "work", Use: "noop", Timeout: trivet.Duration(time.Minute), Retries: 2,
		Backoff: trivet.Duration(5 * time.Minute)})
	h, seq := newHead(f), int64(0)
	report := func(attempt int, state trivet.StepState) {
		t.Helper()
		seq++
		m, err := f.Machines.Get("m1")
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Report(t.Context(), &trivet.Sync{Machine: "m1", Epoch: m.Status.Epoch, Reports: []trivet.Report{
			{Seq: seq, Action: "work", Attempt: attempt, State: state, Cause: "it broke"}}}); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(what string, want trivet.WorkflowState, resets int) {
		t.Helper()
		w, err := f.Workflows.Get("default/p-1")
		if err != nil || w.Status.State != want || w.Status.Resets != resets {
			t.Fatalf("%s the run is %s after %d resets, %v", what, w.Status.State, w.Status.Resets, err)
		}
	}
	report(1, trivet.StepRunning)
	h.attend(t, "default/p-1", 110*time.Second)
	report(1, trivet.StepFailed)
	h.attend(t, "default/p-1", 5*time.Minute+50*time.Second)
	expect("after the first backoff", trivet.WorkflowRunning, 0)
	report(2, trivet.StepRunning)
	h.attend(t, "default/p-1", 110*time.Second)
	report(2, trivet.StepFailed)
	h.attend(t, "default/p-1", 10*time.Minute+50*time.Second)
	expect("after the second backoff", trivet.WorkflowRunning, 0)
	h.attend(t, "default/p-1", 20*time.Second)
	expect("of an agent that does not go on,", trivet.WorkflowBooting, 1)
}

// A machine whose power command is queued is not late; once a head sends it, its time counts.
func TestQueueIsNotLate(t *testing.T) {
	f := fleet.New(storetest.New(t, state.New), "head0")
	create(t, f, &trivet.Machine{Spec: trivet.MachineSpec{BMC: bmc()}},
		trivet.Action{Name: "work", Use: "noop"})
	h := newHead(f)
	attempt := func() int {
		t.Helper()
		w, err := f.Workflows.Get("default/p-1")
		if err != nil {
			t.Fatal(err)
		}
		return w.Status.Current().Attempt
	}
	h.attend(t, "default/p-1", time.Hour)
	if got := attempt(); got != 1 {
		t.Fatalf("attempt %d of a power-on that no head has tried", got)
	}
	m, err := f.Machines.Get("m1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.AcquireIntent(t.Context(), "m1", *m.Status.Intent, time.Minute); err != nil {
		t.Fatal(err)
	}
	h.attend(t, "default/p-1", trivet.DefaultLimits[trivet.StepPowerOn].Timeout.D()+20*time.Second)
	if got := attempt(); got != 2 {
		t.Errorf("attempt %d after a power-on that did not end", got)
	}
}

// The run of a machine is considered at the moment at which a head begins to use its BMC, from which on its time
// counts. Other changes of machines are of no account.
func TestQueueEndsAtOnce(t *testing.T) {
	f := fleet.New(storetest.New(t, state.New), "head0")
	create(t, f, &trivet.Machine{Spec: trivet.MachineSpec{BMC: bmc()}}, trivet.Action{Name: "work", Use: "noop"})
	h := newHead(f)
	watch := f.Store.Watch(0, "Machine")
	affected := func() []string {
		t.Helper()
		events, err := watch.Next(t.Context())
		if err != nil || len(events) != 1 {
			t.Fatalf("%v, %v", events, err)
		}
		return h.Affected(events[0])
	}
	m, err := f.Machines.Get("m1")
	if err != nil {
		t.Fatal(err)
	}
	held, err := f.AcquireIntent(t.Context(), "m1", *m.Status.Intent, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if got := affected(); !slices.Equal(got, []string{"default/p-1"}) {
		t.Errorf("a head uses the BMC: %v", got)
	}
	if err := f.RecordPower(t.Context(), "m1", held, "off"); err != nil {
		t.Fatal(err)
	}
	if got := affected(); len(got) != 0 {
		t.Errorf("the machine is off: %v", got)
	}
}

// An idle agent that does not fetch the run which the claim granted it is lost as soon as it is silent for too long,
// not at the deadline of the step.
func TestIdleAgentIsLost(t *testing.T) {
	f := fleet.New(storetest.New(t, state.New), "head0")
	f.AgentUp = func(string, int64) bool { return true }
	create(t, f, &trivet.Machine{Spec: trivet.MachineSpec{BMC: bmc()},
		Status: trivet.MachineStatus{Epoch: 1, AgentKey: "key"}}, trivet.Action{Name: "work", Use: "noop"})
	h := newHead(f)
	h.attend(t, "default/p-1", time.Minute)
	w, err := f.Workflows.Get("default/p-1")
	if err != nil || w.Status.Current().Name != "work" || w.Status.Epoch != 2 {
		t.Fatalf("%+v, %v", w.Status, err)
	}
	h.advance(f.AgentTimeout())
	if _, err := h.Reconcile(t.Context(), "default/p-1"); err != nil {
		t.Fatal(err)
	}
	w, err = f.Workflows.Get("default/p-1")
	m, errMachine := f.Machines.Get("m1")
	if err := errors.Join(err, errMachine); err != nil || w.Status.Current().Name != trivet.StepDHCP ||
		!workflow.PowerQueued(m) || m.Status.Epoch != 3 || w.Status.Resets != 1 {
		t.Errorf("%+v, %+v, %v", w.Status.Current(), m.Status, err)
	}
}

// An agent that was lost before its grant reached it, in a machine without a BMC, is granted the run when it is back.
func TestIdleAgentReturns(t *testing.T) {
	f := fleet.New(storetest.New(t, state.New), "head0")
	f.AgentUp = func(string, int64) bool { return true }
	create(t, f, &trivet.Machine{Status: trivet.MachineStatus{Epoch: 1, AgentKey: "key"}},
		trivet.Action{Name: "work", Use: "noop"})
	h := newHead(f)
	if _, err := h.Reconcile(t.Context(), "default/p-1"); err != nil {
		t.Fatal(err)
	}
	h.advance(f.AgentTimeout())
	if _, err := h.Reconcile(t.Context(), "default/p-1"); err != nil {
		t.Fatal(err)
	}
	w, err := f.Workflows.Get("default/p-1")
	m, errMachine := f.Machines.Get("m1")
	if err := errors.Join(err, errMachine); err != nil || w.Status.State != trivet.WorkflowBooting {
		t.Fatalf("%+v, %v", w, err)
	}
	what, err := workflow.DecideSync(m, w, &trivet.Sync{Machine: "m1"})
	if err != nil || what != workflow.WriteGrant {
		t.Fatalf("the agent's sync makes the head write %d, %v", what, err)
	}
	if err := f.GrantIdle(t.Context(), "m1", "key"); err != nil {
		t.Fatal(err)
	}
	m, err = f.Machines.Get("m1")
	if err != nil || f.GrantedRun(m) == nil || m.Status.Epoch != 3 {
		t.Errorf("the agent is granted %+v under %d, %v", f.GrantedRun(m), m.Status.Epoch, err)
	}
}
