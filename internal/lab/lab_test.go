package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/agent/action"
	"github.com/trivet-project/trivet/internal/server"
	"github.com/trivet-project/trivet/internal/testhead"
)

// site is a real head on loopback and simulated machines.
type site struct {
	*testing.T
	*head
	demo *Demo
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{T: t, demo: &Demo{Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler), Version: "test",
		api: testhead.NewAddress() + ":7480"}} // no other program takes the port while the head is down
	s.start()
	t.Cleanup(func() { s.head.close() })
	s.must(prepare(t.Context(), s.client, false))
	return s
}

func (s *site) start() {
	s.Helper()
	h, err := startHead(s.Context(), s.demo)
	s.must(err)
	s.head = h
}

func (s *site) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// limits sets a short deadline for every boot step, without retries.
func (s *site) limits(timeout time.Duration) {
	s.Helper()
	_, err := client.Of[trivet.Site](s.client).Modify(s.Context(), trivet.SiteName, func(site *trivet.Site) error {
		site.Spec.Limits, site.Spec.Resets = map[string]trivet.Limit{}, 1
		site.Spec.AgentTimeout = trivet.Duration(5 * time.Second)
		for _, step := range trivet.BootSteps {
			site.Spec.Limits[step] = trivet.Limit{Timeout: trivet.Duration(timeout), Retries: new(0)}
		}
		return nil
	})
	s.must(err)
}

func (s *site) template(name string, actions ...trivet.Action) {
	s.Helper()
	_, err := client.Of[trivet.Template](s.client).Create(s.Context(), &trivet.Template{
		Meta: trivet.Meta{Project: "default", Name: name}, Spec: trivet.TemplateSpec{Actions: actions}})
	s.must(err)
}

// dhcpLimit sets the deadline of a template's machines for DHCP, without retries; 0: that of the site.
func (s *site) dhcpLimit(template string, timeout time.Duration) {
	s.Helper()
	_, err := client.Of[trivet.Template](s.client).Modify(s.Context(), template, func(t *trivet.Template) error {
		t.Spec.Limits = nil
		if timeout > 0 {
			limit := trivet.Limit{Timeout: trivet.Duration(timeout), Retries: new(0)}
			t.Spec.Limits = map[string]trivet.Limit{trivet.StepDHCP: limit}
		}
		return nil
	})
	s.must(err)
}

// machine creates the records of a machine and its provision.
func (s *site) machine(name, template string) *Machine {
	s.Helper()
	m := s.machineOnly(name)
	s.provision(name, template)
	return m
}

func (s *site) machineOnly(name string) *Machine {
	s.Helper()
	m := &Machine{Name: name, MAC: macOf(len(name)), Dir: s.demo.Dir, DHCP: []string{s.dhcp}, Log: s.demo.Log,
		Up: func() {}}
	_, err := client.Of[trivet.Machine](s.client).Create(s.Context(), &trivet.Machine{
		Meta: trivet.Meta{Name: name}, Spec: trivet.MachineSpec{NICs: []trivet.NIC{{MAC: m.MAC}}}})
	s.must(err)
	return m
}

func (s *site) provision(name, template string) {
	s.Helper()
	_, err := client.Of[trivet.Provision](s.client).Create(s.Context(), &trivet.Provision{
		Meta: trivet.Meta{Project: "default", Name: name}, Spec: trivet.ProvisionSpec{Template: template, Machine: name}})
	s.must(err)
}

// power runs the machine until the returned function is called.
func (s *site) power(m *Machine) (off func()) { return run(m) }

// until waits until a workflow fulfills a condition.
func (s *site) until(name string, condition func(*trivet.Workflow) bool) *trivet.Workflow {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), 2*time.Minute)
	defer cancel()
	opts := client.WatchOptions{Kinds: []trivet.Kind{"Workflow"}, Names: []string{name}}
	for e, err := range s.client.Watch(ctx, opts) {
		s.must(err)
		if w, ok := e.Record.(*trivet.Workflow); ok && condition(w) {
			return w
		}
	}
	s.Fatalf("workflow %s does not fulfill the condition", name)
	return nil
}

func (s *site) mustFail(name string, fault trivet.FailureType, step, cause string) {
	s.Helper()
	w := s.until(name+"-1", func(w *trivet.Workflow) bool { return w.Status.State.Ended() })
	f := w.Status.Failure
	if f == nil || f.Type != fault || f.Step != step || !strings.Contains(f.Cause, cause) {
		s.Errorf("%s ended %s with %+v; want a %s failure of %s with cause %q", name, w.Status.State, f, fault, step,
			cause)
	}
	p, err := client.Of[trivet.Provision](s.client).Get(s.Context(), name)
	if err != nil || p.Status.State != trivet.ProvisionFailed || !strings.Contains(p.Status.Reason, cause) {
		s.Errorf("its provision: %+v, %v", p, err)
	}
}

func running(step string) func(*trivet.Workflow) bool {
	return func(w *trivet.Workflow) bool {
		s := w.Status.Step(step)
		return s != nil && s.State == trivet.StepRunning && w.Status.State == trivet.WorkflowRunning
	}
}

func TestDemo(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	d := &Demo{
		Machines: 5, Heads: 1, Timeout: 2 * time.Minute, JSON: true, Dir: t.TempDir(), Out: &out,
		Log:     slog.New(slog.DiscardHandler),
		History: filepath.Join(t.TempDir(), "history.jsonl"),
	}
	s, err := d.Run(t.Context())
	if err != nil || s.Machines != 5 || s.Provisioned != 5 || s.Failed != 0 || s.Repeated != 0 {
		t.Fatalf("the demo: %+v, %v", s, err)
	}
	// The summary can be recomputed from the history.
	text, err := os.ReadFile(d.History)
	if err != nil {
		t.Fatal(err)
	}
	up := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		var e struct{ What, Subject, Text string }
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		if e.What == "write" && e.Text == string(trivet.ProvisionSucceeded) {
			up[e.Subject] = true
		}
	}
	if len(up) != 5 {
		t.Errorf("%d provisions succeeded in the history, want 5", len(up))
	}
}

func TestMachineNeverBoots(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.limits(2 * time.Second)
	s.machine("never", "demo")
	s.mustFail("never", trivet.FaultMachine, trivet.StepDHCP, "no DHCP request")
}

// Machines that are dead fail at the same moment, while another one boots: their network is not at fault.
func TestDeadMachinesBesideAGoodOne(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.template("dead", trivet.Action{Name: "seed", Use: "seed"}, trivet.Action{Name: "reboot", Use: "reboot"})
	s.dhcpLimit("dead", 20*time.Second) // not of the good one, which may be slow
	s.machine("d", "dead")
	s.machine("dd", "dead")
	good := s.machine("good", "demo")
	defer s.power(good)()
	s.mustFail("d", trivet.FaultMachine, trivet.StepDHCP, "no DHCP request")
	s.mustFail("dd", trivet.FaultMachine, trivet.StepDHCP, "no DHCP request")
	s.until("good-1", func(w *trivet.Workflow) bool { return w.Status.State == trivet.WorkflowSucceeded })
	n, err := client.Of[trivet.Network](s.client).Get(t.Context(), "loopback")
	s.must(err)
	if n.Status.Failures != nil {
		t.Errorf("failures of the network: %+v", n.Status.Failures)
	}
}

func TestDeadlineFiresAfterRestart(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.limits(4 * time.Second)
	s.machine("never", "demo")
	s.until("never-1", func(w *trivet.Workflow) bool { return w.Status.Current() != nil })
	s.head.close()
	s.start()
	s.mustFail("never", trivet.FaultMachine, trivet.StepDHCP, "no DHCP request")
}

func TestActionHangs(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.template("hang", trivet.Action{
		Name: "hang", Use: "noop", With: map[string]any{"sleep": "1h"}, Retries: 1,
		Timeout: trivet.Duration(time.Second)})
	defer s.power(s.machine("hangs", "hang"))()
	s.mustFail("hangs", trivet.FaultMachine, "hang", "timed out after 1s")
}

func TestSilentAgent(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.limits(20 * time.Second)
	s.template("long", trivet.Action{Name: "long", Use: "noop", With: map[string]any{"sleep": "1h"},
		Timeout: trivet.Duration(2 * time.Hour)})
	off := s.power(s.machine("silent", "long"))
	s.until("silent-1", running("long"))
	off() // in its first action
	s.head.close()
	s.start()
	s.mustFail("silent", trivet.FaultMachine, trivet.StepDHCP, "silent")
}

// A machine that does not boot is replaced by another one, which gets the same configuration.
func TestFailover(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.template("quick", trivet.Action{Name: "seed", Use: "seed"}, trivet.Action{Name: "reboot", Use: "reboot"})
	s.dhcpLimit("quick", 5*time.Second)
	pool := map[string]string{"pool": "a"}
	for i, name := range []string{"a-dead", "b-alive"} {
		m := &Machine{Name: name, MAC: macOf(i + 1), Dir: s.demo.Dir, DHCP: []string{s.dhcp}, Log: s.demo.Log, Up: func() {}}
		_, err := client.Of[trivet.Machine](s.client).Create(s.Context(), &trivet.Machine{
			Meta: trivet.Meta{Name: name, Labels: pool}, Spec: trivet.MachineSpec{NICs: []trivet.NIC{{MAC: m.MAC}}}})
		s.must(err)
		if name == "b-alive" {
			defer s.power(m)()
		}
	}
	_, err := client.Of[trivet.Provision](s.client).Create(s.Context(), &trivet.Provision{
		Meta: trivet.Meta{Name: "web"}, Spec: trivet.ProvisionSpec{Template: "quick", Selector: pool}})
	s.must(err)
	s.until("web-1", func(*trivet.Workflow) bool { return true })
	s.dhcpLimit("quick", 0) // the second machine may be slow
	if w := s.until("web-2", func(w *trivet.Workflow) bool { return w.Status.State.Ended() }); w.Status.State !=
		trivet.WorkflowSucceeded {
		t.Errorf("the second run ended %s: %+v", w.Status.State, w.Status.Failure)
	}
	p, err := client.Of[trivet.Provision](s.client).Get(t.Context(), "web")
	s.must(err)
	if p.Status.State != trivet.ProvisionSucceeded || p.Status.Machine != "b-alive" || len(p.Status.Spent) != 1 ||
		p.Status.Spent[0].Machine != "a-dead" || p.Status.Spent[0].Failure.Step != trivet.StepDHCP {
		t.Errorf("the provision: %+v", p.Status)
	}
	m, err := client.Of[trivet.Machine](s.client).Get(t.Context(), "a-dead")
	if err != nil || m.Status.State != trivet.MachineQuarantined {
		t.Errorf("the machine that does not boot: %+v, %v", m, err)
	}
}

// A machine in service is replaced by another one, which gets the same configuration, and can be used again.
func TestReplace(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.template("quick", trivet.Action{Name: "seed", Use: "seed"}, trivet.Action{Name: "reboot", Use: "reboot"})
	pool, machines := map[string]string{"pool": "a"}, map[string]*Machine{}
	for i, name := range []string{"a", "b"} {
		m := &Machine{Name: name, MAC: macOf(i + 1), Dir: s.demo.Dir, DHCP: []string{s.dhcp}, Log: s.demo.Log, Up: func() {}}
		_, err := client.Of[trivet.Machine](s.client).Create(s.Context(), &trivet.Machine{
			Meta: trivet.Meta{Name: name, Labels: pool}, Spec: trivet.MachineSpec{NICs: []trivet.NIC{{MAC: m.MAC}}}})
		s.must(err)
		machines[name] = m
	}
	_, err := client.Of[trivet.Provision](s.client).Create(s.Context(), &trivet.Provision{
		Meta: trivet.Meta{Name: "web"}, Spec: trivet.ProvisionSpec{Template: "quick", Selector: pool}})
	s.must(err)
	ends := func(run string) (machine string) {
		t.Helper()
		w := s.until(run, func(*trivet.Workflow) bool { return true })
		defer s.power(machines[w.Spec.Machine])()
		s.until(run, func(w *trivet.Workflow) bool { return w.Status.State == trivet.WorkflowSucceeded })
		return w.Spec.Machine
	}
	first := ends("web-1")
	s.must(s.client.Replace(s.Context(), "default", "web", trivet.ReplaceRequest{Reason: "noise", Machine: first}))
	if m := s.record(machines[first]); m.Status.State != trivet.MachineQuarantined || m.Status.Provision != "" {
		t.Errorf("the machine that was replaced: %+v", m.Status)
	}
	second := ends("web-2")
	p, err := client.Of[trivet.Provision](s.client).Get(t.Context(), "web")
	s.must(err)
	if second == first || p.Status.State != trivet.ProvisionSucceeded || p.Status.Machine != second ||
		p.Status.Replaced == nil || p.Status.Replaced.Machine != first {
		t.Errorf("the provision: %+v", p.Status)
	}
	s.must(s.client.Accept(t.Context(), first))
	if err := s.client.Replace(t.Context(), "default", "web", trivet.ReplaceRequest{Machine: first}); !errors.Is(err,
		trivet.ErrConflict) {
		t.Errorf("again, by the name of the former machine: %v", err)
	}
}

// Two machines install a provision at the same time. One of them serves it, and the other one can be used again.
func TestRace(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.template("quick", trivet.Action{Name: "seed", Use: "seed"}, trivet.Action{Name: "reboot", Use: "reboot"})
	pool, machines := map[string]string{"pool": "a"}, map[string]*Machine{}
	for i, name := range []string{"a", "b"} {
		m := &Machine{Name: name, MAC: macOf(i + 1), Dir: s.demo.Dir, DHCP: []string{s.dhcp}, Log: s.demo.Log, Up: func() {}}
		_, err := client.Of[trivet.Machine](s.client).Create(s.Context(), &trivet.Machine{
			Meta: trivet.Meta{Name: name, Labels: pool}, Spec: trivet.MachineSpec{NICs: []trivet.NIC{{MAC: m.MAC}}}})
		s.must(err)
		machines[name] = m
	}
	_, err := client.Of[trivet.Provision](s.client).Create(s.Context(), &trivet.Provision{
		Meta: trivet.Meta{Name: "web"}, Spec: trivet.ProvisionSpec{Template: "quick", Selector: pool,
			Race: trivet.RaceMachines}})
	s.must(err)
	s.until("web-2", func(*trivet.Workflow) bool { return true })
	for _, m := range machines {
		defer s.power(m)()
	}
	ended := func(w *trivet.Workflow) bool { return w.Status.State.Ended() }
	states := map[trivet.WorkflowState]string{}
	for _, run := range []string{"web-1", "web-2"} {
		w := s.until(run, ended)
		states[w.Status.State] = w.Spec.Machine
	}
	p, err := client.Of[trivet.Provision](s.client).Get(t.Context(), "web")
	s.must(err)
	first, second := states[trivet.WorkflowSucceeded], states[trivet.WorkflowCancelled]
	if first == "" || second == "" || p.Status.Machine != first || p.Status.State != trivet.ProvisionSucceeded {
		t.Fatalf("the runs: %v, the provision: %+v", states, p.Status)
	}
	if m := s.record(machines[second]); m.Status.Provision != "" || m.Status.State == trivet.MachineQuarantined {
		t.Errorf("the machine that lost: %+v", m.Status)
	}
	if m := s.record(machines[first]); m.Status.State != trivet.MachineActive {
		t.Errorf("the machine that won: %+v", m.Status)
	}
}

func TestResetDuringWorkflow(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.template("slow",
		trivet.Action{Name: "first", Use: "file", With: map[string]any{"path": "/first", "content": "x"}},
		trivet.Action{Name: "second", Use: "noop"},
		trivet.Action{Name: "seed", Use: "seed"}, trivet.Action{Name: "reboot", Use: "reboot"})
	m := s.machine("reset", "slow")
	var held atomic.Bool
	m.Wrap = func(next Doer) Doer {
		return func(ctx context.Context, a *action.Attempt) error {
			if a.Action.Name == "second" && !held.Swap(true) {
				<-ctx.Done() // it is off
				return ctx.Err()
			}
			return next(ctx, a)
		}
	}
	off := s.power(m)
	s.until("reset-1", running("second"))
	off()
	defer s.power(m)()
	w := s.until("reset-1", func(w *trivet.Workflow) bool { return w.Status.State.Ended() })
	if w.Status.State != trivet.WorkflowSucceeded || w.Status.Resets != 1 {
		t.Errorf("ended %s after %d resets: %+v", w.Status.State, w.Status.Resets, w.Status.Failure)
	}
	if n, err := repeated(s.demo.Dir, []string{"reset"}, nil); n != 0 || err != nil {
		t.Errorf("%d acknowledged actions ran again, %v", n, err)
	}
}

func TestAgentOutlivesHeadRestart(t *testing.T) {
	s := newSite(t)
	s.template("slow", trivet.Action{Name: "slow", Use: "noop", With: map[string]any{"sleep": "2s"}},
		trivet.Action{Name: "seed", Use: "seed"}, trivet.Action{Name: "last", Use: "noop"})
	defer s.power(s.machine("away", "slow"))()
	s.until("away-1", running("slow"))
	s.head.close()
	time.Sleep(3 * time.Second) // the agent ends its run meanwhile
	s.start()
	w := s.until("away-1", func(w *trivet.Workflow) bool { return w.Status.State.Ended() })
	if w.Status.State != trivet.WorkflowSucceeded {
		t.Errorf("ended %s: %+v", w.Status.State, w.Status.Failure)
	}
}

func TestSecondStartAndUsedPorts(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	_, err := startHead(t.Context(), s.demo)
	if !errors.Is(err, trivet.ErrUnavailable) || !strings.Contains(err.Error(), "process") {
		t.Errorf("a second head on the same data: %v", err)
	}
	_, err = server.New(t.Context(), server.Config{
		Dir: t.TempDir(), Name: "head0", API: s.demo.api,
		Boot: "127.0.0.1:0", Log: s.demo.Log,
	})
	if !errors.Is(err, trivet.ErrUnavailable) || !strings.Contains(err.Error(), "--api") {
		t.Errorf("a port in use: %v; want the flag named", err)
	}
}
