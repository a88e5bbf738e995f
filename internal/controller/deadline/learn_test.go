package deadline

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/fleet"
	"github.com/trivet-project/trivet/internal/learnt"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/storetest"
)

// learner is a [Learner] that keeps the runs.
type learner []learnt.Run

func (l *learner) Add(r learnt.Run)                          { *l = append(*l, r) }
func (l *learner) Exchange(context.Context, time.Time) error { return nil }

// took returns how long the steps of the only run took, by their first keys.
func (l *learner) took(t *testing.T) map[string]time.Duration {
	t.Helper()
	if len(*l) != 1 {
		t.Fatalf("%d runs were learnt: %+v", len(*l), *l)
	}
	all := map[string]time.Duration{}
	for _, step := range (*l)[0].Steps {
		all[step.Keys[0]] = step.Time
	}
	return all
}

// installer is a machine with a BMC that is installed while time passes at the heads.
type installer struct {
	*testing.T
	f     *fleet.Fleet
	heads []*head
}

func newInstaller(t *testing.T) *installer {
	f := fleet.New(storetest.New(t, state.New), "head0")
	_, err := f.Store.Update(t.Context(), func(tx *store.Tx) error {
		return f.MACs.In(tx).Put(&trivet.MAC{Meta: trivet.Meta{Name: mac}, Spec: trivet.MACSpec{Machine: "m1"}})
	})
	if err != nil {
		t.Fatal(err)
	}
	return &installer{t, f, nil}
}

// head starts a head that ranks as many heads before itself.
func (i *installer) head(rank int) *learner {
	h, l := newHeadNamed(i.f, fmt.Sprint("head", len(i.heads))), &learner{}
	h.Rank, h.Learner = func(string) int { return rank }, l
	i.heads = append(i.heads, h)
	return l
}

// after does what the machine does after some time, during which the heads process the run.
func (i *installer) after(seconds int, do func(ctx context.Context) error) {
	i.Helper()
	for _, h := range i.heads {
		h.reconcile(i.T, "default/p-1")
		h.advance(time.Duration(seconds) * time.Second)
		h.agent = h.clock.Counted()
	}
	if err := do(i.Context()); err != nil {
		i.Fatal(err)
	}
	if err := i.f.Store.Sync(i.Context()); err != nil {
		i.Fatal(err)
	}
	for _, h := range i.heads {
		h.reconcile(i.T, "default/p-1")
	}
}

func (i *installer) claim() {
	create(i.T, i.f, &trivet.Machine{Spec: trivet.MachineSpec{BMC: bmc()}}, trivet.Action{Name: "work", Use: "seed"},
		trivet.Action{Name: "boot", Use: "reboot"})
}

func (i *installer) power(state string) func(context.Context) error {
	return func(ctx context.Context) error {
		m, err := i.f.Machines.Get("m1")
		if err != nil {
			return err
		}
		held, err := i.f.AcquireIntent(ctx, "m1", *m.Status.Intent, time.Minute)
		if err != nil || state == "" {
			return err
		}
		return i.f.RecordPower(ctx, "m1", held, state)
	}
}

func (i *installer) reach(step string) func(context.Context) error {
	return func(ctx context.Context) error { return i.f.ReachBootStep(ctx, "m1", step, 0) }
}

func (i *installer) hello(ctx context.Context) error {
	_, err := i.f.Hello(ctx, &trivet.Hello{MAC: mac, Key: "k", BootID: "b",
		Inventory: trivet.Inventory{Vendor: "Dell"}}, auth.BootToken{Machine: "m1", MAC: mac})
	return err
}

// begin reports that the first action begins.
func (i *installer) begin(ctx context.Context) error {
	return i.report(ctx, trivet.Report{Seq: 1, Action: "work", Attempt: 1, State: trivet.StepRunning})
}

// end reports that both actions are done.
func (i *installer) end(ctx context.Context) error {
	return i.report(ctx, trivet.Report{Seq: 2, Action: "work", Attempt: 1, State: trivet.StepDone, Elapsed: took},
		trivet.Report{Seq: 3, Action: "boot", Attempt: 1, State: trivet.StepDone})
}

// took is how long the agent says that the first action took.
const took = trivet.Duration(31 * time.Second)

func (i *installer) report(ctx context.Context, reports ...trivet.Report) error {
	return i.f.Report(ctx, &trivet.Sync{Machine: "m1", Epoch: 1, BootID: "b", Reports: reports})
}

func (i *installer) phoneHome(ctx context.Context) error {
	w, err := i.f.Workflows.Get("default/p-1")
	return errors.Join(err, i.f.PhoneHome(ctx, auth.BootToken{Machine: "m1", Epoch: 1, Run: w.UID}, nil))
}

func nothing(context.Context) error { return nil }

// The head that ranks first learns from a run that ended: boot steps as long as it counted them, without the time in
// which the power command was queued; actions as the agent measured them. The others learn nothing.
func TestRunIsLearnt(t *testing.T) {
	i := newInstaller(t)
	first, second := i.head(0), i.head(1)
	i.claim()
	i.after(100, nothing) // queued
	i.after(10, i.power(""))
	i.after(7, i.power("on"))
	i.after(40, i.reach(trivet.StepDHCP))
	i.after(3, i.reach(trivet.StepScript))
	i.after(5, i.reach(trivet.StepKernel))
	i.after(20, i.hello)
	i.after(1, i.begin)
	i.after(33, i.end)
	i.after(50, i.phoneHome)
	i.after(60, nothing)
	if r := (*first)[0]; r.Model != "Dell" || !r.Succeeded || r.Failure != "" {
		t.Errorf("the run is %+v", r)
	}
	s := time.Second
	want := map[string]time.Duration{trivet.StepPowerOn: 7 * s, trivet.StepDHCP: 40 * s, trivet.StepScript: 3 * s,
		trivet.StepKernel: 5 * s, trivet.StepHello: 20 * s, "default/t/work": 31 * s, trivet.StepFirstBoot: 50 * s}
	if got := first.took(t); !maps.Equal(got, want) {
		t.Errorf("learnt %v, want %v", got, want)
	}
	if len(*second) != 0 {
		t.Errorf("the head that ranks second learnt %+v", *second)
	}
	if len(i.heads[0].boots)+len(i.heads[0].timers) != 0 {
		t.Errorf("the head still measures %v", i.heads[0].boots)
	}
}

// Nothing is learnt of a step whose beginning a head did not see, nor of one during which it was paused. The other steps
// are learnt.
func TestOnlyWholeStepsAreLearnt(t *testing.T) {
	i := newInstaller(t)
	i.claim()
	i.after(1, i.power(""))
	l := i.head(0) // it starts while power-on is running
	i.after(10, i.power("on"))
	i.after(20, i.reach(trivet.StepScript))
	i.after(5, func(ctx context.Context) error {
		i.heads[0].now = i.heads[0].now.Add(3 * time.Second) // paused
		i.heads[0].clock.Advance(i.heads[0].now, true)
		i.heads[0].advance(10 * time.Second)
		return i.f.ReachBootStep(ctx, "m1", trivet.StepKernel, 0)
	})
	i.after(20, i.hello)
	i.after(1, i.begin)
	i.after(33, i.end)
	i.after(50, i.phoneHome)
	want := map[string]time.Duration{trivet.StepDHCP: 20 * time.Second, trivet.StepHello: 20 * time.Second,
		"default/t/work": 31 * time.Second, trivet.StepFirstBoot: 50 * time.Second}
	if got := l.took(t); !maps.Equal(got, want) {
		t.Errorf("learnt %v, want %v", got, want)
	}
}

// How long a machine without a BMC takes to request an address says how long a person took to power it on.
func TestManualPowerOnIsNotLearnt(t *testing.T) {
	i := newInstaller(t)
	l := i.head(0)
	create(t, i.f, &trivet.Machine{}, trivet.Action{Name: "work", Use: "noop"})
	i.after(300, nothing)
	i.after(40, i.reach(trivet.StepDHCP))
	i.after(3, i.reach(trivet.StepScript))
	i.after(5, func(ctx context.Context) error { return i.f.Quarantine(ctx, "m1", "noise") })
	if got := l.took(t); len(got) != 1 || got[trivet.StepScript] != 3*time.Second {
		t.Errorf("learnt %v", got)
	}
}

// A run that had ended before a head knew it is not learnt: another one did.
func TestEndedRunIsNotLearntAgain(t *testing.T) {
	i := newInstaller(t)
	first := i.head(0)
	i.claim()
	i.after(1, nothing)
	if err := i.f.Quarantine(i.Context(), "m1", "noise"); err != nil {
		t.Fatal(err)
	}
	if keys := i.heads[0].Keys(); !slices.Contains(keys, "default/p-1") { // where the change is missed
		t.Errorf("of a run that has ended and was not learnt, the keys are %v", keys)
	}
	i.after(1, nothing)
	if len(*first) != 1 {
		t.Errorf("learnt: %+v", *first)
	}
	late := i.head(0)
	if keys := append(i.heads[0].Keys(), i.heads[1].Keys()...); len(keys) > 0 {
		t.Errorf("of a run that has ended, the keys are %v", keys)
	}
	i.after(1, nothing)
	if len(*first) != 1 || len(*late) != 0 {
		t.Errorf("learnt again: %+v, %+v", *first, *late)
	}
}

// exchanges is a [Learner] that counts exchanges, until it ends them.
type exchanges struct {
	learner
	end context.CancelFunc
	n   int
}

func (e *exchanges) Exchange(context.Context, time.Time) error {
	e.n++
	e.end()
	return nil
}

// What was learnt is exchanged when a head has begun to count, so that it knows at once what others have learnt.
func TestLearntIsExchanged(t *testing.T) {
	f := fleet.New(storetest.New(t, state.New), "head0")
	h := newHead(f)
	ctx, cancel := context.WithCancel(t.Context())
	e := &exchanges{end: cancel}
	h.Learner = e
	h.Run(ctx)
	if e.n != 1 {
		t.Errorf("%d exchanges", e.n)
	}
}

// A step that takes longer than earlier ones is reported once, and fails at its deadline only.
func TestLateStepIsReported(t *testing.T) {
	i := newInstaller(t)
	b := &learnt.Book{}
	for range 200 {
		b.Add(learnt.Run{Model: learnt.ModelOf(nil), Succeeded: true,
			Steps: []learnt.Took{{Keys: []string{trivet.StepPowerOn}, Time: 35 * time.Second}}})
	}
	i.f.Learnt = func() *learnt.Book { return b }
	i.head(0)
	i.head(1)
	i.claim()
	i.after(300, nothing) // queued
	late := func() int {
		m, err := i.f.Machines.Get("m1")
		if err != nil {
			t.Fatal(err)
		}
		events, err := i.f.Events.Under(t.Context(), trivet.EventPrefix("machine/m1", m.UID), "", 0)
		if err != nil {
			t.Fatal(err)
		}
		var all []string
		for _, e := range events {
			all = append(all, e.Spec.Reason)
		}
		return strings.Count(strings.Join(all, " "), trivet.ReasonStepLate)
	}
	i.after(1, i.power(""))
	i.after(30, nothing)
	if n := late(); n != 0 {
		t.Errorf("%d reports before it is late", n)
	}
	i.after(15, nothing)
	i.after(15, nothing)
	if n := late(); n != 1 {
		t.Errorf("%d reports of one step that is late", n)
	}
	w, err := i.f.Workflows.Get("default/p-1")
	if err != nil || w.Status.Current().Attempt != 1 || w.Status.State != trivet.WorkflowBooting {
		t.Errorf("the run is %+v, %v", w.Status, err)
	}
}

// A provision that hedges gets a second machine once a step of the first one is slow, and not where too few runs are
// known.
func TestSlowRunIsHedged(t *testing.T) {
	for _, known := range []int{trivet.MinHedgeRuns - 1, 200} {
		i := newInstaller(t)
		b := &learnt.Book{}
		for range known {
			b.Add(learnt.Run{Model: learnt.ModelOf(nil), Succeeded: true,
				Steps: []learnt.Took{{Keys: []string{trivet.StepPowerOn}, Time: 35 * time.Second}}})
		}
		i.f.Learnt = func() *learnt.Book { return b }
		i.head(0)
		pool := map[string]string{"pool": "p"}
		_, err := i.f.Store.Update(t.Context(), func(tx *store.Tx) error {
			m := func(name, mac string) error {
				return i.f.Machines.In(tx).Put(&trivet.Machine{Meta: trivet.Meta{Name: name, Labels: pool},
					Spec:   trivet.MachineSpec{NICs: []trivet.NIC{{MAC: mac}}, BMC: bmc()},
					Status: trivet.MachineStatus{State: trivet.MachineAvailable}})
			}
			return errors.Join(m("m1", "52:54:00:00:00:01"), m("m2", "52:54:00:00:00:02"),
				i.f.Sites.In(tx).Put(&trivet.Site{Meta: trivet.Meta{Name: trivet.SiteName},
					Status: trivet.SiteStatus{ClusterVersion: trivet.CurrentRelease}}),
				i.f.Templates.In(tx).Put(&trivet.Template{Meta: trivet.Meta{Project: "default", Name: "t"},
					Spec: trivet.TemplateSpec{Actions: []trivet.Action{{Name: "work", Use: "noop"}}}}),
				i.f.Provisions.In(tx).Put(&trivet.Provision{Meta: trivet.Meta{Project: "default", Name: "p"},
					Spec: trivet.ProvisionSpec{Template: "t", Selector: pool, Hedge: true}}))
		})
		if err := errors.Join(err, i.f.Claim(t.Context(), "default/p")); err != nil {
			t.Fatal(err)
		}
		status := func() trivet.ProvisionStatus {
			p, err := i.f.Provisions.Get("default/p")
			if err != nil {
				t.Fatal(err)
			}
			return p.Status
		}
		i.after(1, i.power(""))
		i.after(30, nothing)
		if st := status(); st.Hedge != "" || st.Machine != "m1" {
			t.Errorf("before it is slow: %+v", st)
		}
		i.after(15, nothing)
		i.after(15, nothing)
		if err := i.f.Claim(t.Context(), "default/p"); err != nil {
			t.Fatal(err)
		}
		st := status()
		if known < trivet.MinHedgeRuns {
			if st.Hedge != "" || st.Race != nil {
				t.Errorf("with %d runs known: %+v", known, st)
			}
		} else if !strings.HasPrefix(st.Hedge, "power-on takes longer than ") || st.Race == nil || st.Race.Machine != "m2" {
			t.Errorf("slow: %+v", st)
		}
	}
}
