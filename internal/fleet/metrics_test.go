package fleet_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/fleet"
	"github.com/trivet-project/trivet/internal/store"
)

// counted returns the counters that are not 0, and the number of observations of each histogram, by name and labels.
func counted(t *testing.T, reg *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			key := strings.TrimPrefix(f.GetName(), "trivet_")
			for _, l := range m.GetLabel() {
				key += " " + l.GetValue()
			}
			if n := m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount()); n > 0 {
				all[key] = n
			}
		}
	}
	return all
}

// check compares what was counted since the last call.
func (c *counter) check(what string, want map[string]float64) {
	c.r.Helper()
	now := counted(c.r.T, c.reg)
	since := maps.Clone(now)
	for key, n := range c.last {
		if since[key] -= n; since[key] == 0 {
			delete(since, key)
		}
	}
	if !maps.Equal(since, want) {
		c.r.Errorf("%s counted %v, want %v", what, since, want)
	}
	c.last = now
}

type counter struct {
	r    *rack
	reg  *prometheus.Registry
	last map[string]float64
}

func newCounter(r *rack) *counter {
	reg := prometheus.NewRegistry()
	r.Metrics = fleet.NewMetrics(reg)
	return &counter{r: r, reg: reg}
}

// An install counts each step once, with its attempts, then its run and its provision. What is repeated counts nothing.
func TestMetricsOfAnInstall(t *testing.T) {
	r := newRack(t)
	c := newCounter(r)
	r.write(func(tx *store.Tx) error {
		tmpl, err := r.Templates.In(tx).Get("default/t")
		if err != nil {
			return err
		}
		tmpl.Spec.Actions[0].Retries = 3
		return r.Templates.In(tx).Put(tmpl)
	})
	r.provision("p")
	epoch := r.machine().Status.Epoch
	for _, step := range []string{trivet.StepKernel, trivet.StepKernel} {
		r.must(r.ReachBootStep(t.Context(), "m1", step, epoch))
	}
	r.must(r.hello("k1", epoch))
	c.check("the boot, whose script was not noticed,", map[string]float64{"step_seconds done dhcp": 1,
		"step_seconds done hello": 1})
	epoch = r.machine().Status.Epoch
	r.must(r.report(epoch, "k1", trivet.Report{Seq: 1, Action: "work", Attempt: 1, State: trivet.StepFailed}))
	reports := []trivet.Report{
		{Seq: 2, Action: "work", Attempt: 2, State: trivet.StepRunning},
		{Seq: 3, Action: "work", Attempt: 2, State: trivet.StepDone, Elapsed: trivet.Duration(1e18)},
		{Seq: 4, Action: "reboot", Attempt: 1, State: trivet.StepDone, Elapsed: 5},
	}
	r.must(r.report(epoch, "k1", reports...))
	r.must(r.report(epoch, "k1", reports...))
	c.check("the actions", map[string]float64{"step_retries_total seed": 1, "step_seconds done seed": 1,
		"step_seconds done reboot": 1})
	r.must(r.phoneHome(epoch))
	r.must(r.phoneHome(epoch))
	c.check("the end", map[string]float64{"step_seconds done first-boot": 1, "runs_total none succeeded": 1,
		"provisions_total none succeeded": 1})
	r.release("p")
	c.check("the release of an installed machine", map[string]float64{})
}

// A run that fails counts its cause; the provision counts a switch, and then how it ended.
func TestMetricsOfFailures(t *testing.T) {
	r := newRack(t)
	r.pool()
	c := newCounter(r)
	r.provisionOf("a", trivet.ProvisionSpec{Template: "t", Selector: map[string]string{"pool": "p"}})
	r.failRunAt("a", trivet.StepPowerOn)
	attempts := float64(*trivet.DefaultLimits[trivet.StepPowerOn].Retries)
	first := map[string]float64{"step_retries_total power-on": attempts, "step_seconds failed power-on": 1,
		"runs_total machine failed": 1, "provision_switches_total": 1}
	c.check("the first machine", first)
	r.must(r.Claim(t.Context(), "default/a"))
	r.failRunAt("a", trivet.StepDHCP)
	got := counted(t, c.reg)
	if p := r.provisionNamed("a"); p.Status.State != trivet.ProvisionFailed || got["provision_switches_total"] != 1 ||
		got["provisions_total machine failed"] != 1 || got["runs_total machine failed"] != 2 {
		t.Errorf("the second machine, after which the provision is %s: %v", p.Status.State, got)
	}
	c.last = got
	r.provisionOf("b", trivet.ProvisionSpec{Template: "none", Machine: "p3"})
	c.check("a provision without a template", map[string]float64{"provisions_total configuration failed": 1})
	r.provisionOf("c", trivet.ProvisionSpec{Template: "t", Machine: "p3"})
	r.must(r.Quarantine(t.Context(), "p3", "test"))
	c.check("a cancelled run", map[string]float64{"runs_total none cancelled": 1, "provisions_total none cancelled": 1})
	r.provisionOf("d", trivet.ProvisionSpec{Template: "t", Machine: "p4"})
	r.release("d")
	c.check("a provision that was deleted", map[string]float64{"runs_total none cancelled": 1})
}

// Whatever an agent reports and users name, the values of labels are known ones.
func TestMetricsHaveFewLabels(t *testing.T) {
	r := newRack(t)
	c := newCounter(r)
	before, err := c.reg.Gather()
	r.must(err)
	r.write(func(tx *store.Tx) error {
		return r.Templates.In(tx).Put(&trivet.Template{Meta: trivet.Meta{Project: "default", Name: "t"},
			Spec: trivet.TemplateSpec{Actions: []trivet.Action{{Name: "a-name-of-a-user", Use: "noop"}}}})
	})
	for i := range 3 {
		name := fmt.Sprint("p", i)
		r.provision(name)
		epoch := r.machine().Status.Epoch
		r.must(r.hello(name, epoch))
		r.must(r.report(r.machine().Status.Epoch, name, trivet.Report{Seq: 1, Action: "a-name-of-a-user", Attempt: 1,
			State: trivet.StepFailed, Final: true, Fault: trivet.FailureType("invented-" + name)}))
		r.release(name)
		if m := r.machine(); m.Status.State != trivet.MachineAvailable {
			r.acceptReleased("m1")
		}
	}
	c.check("three invented causes", map[string]float64{"runs_total other failed": 3, "provisions_total other failed": 3,
		"step_seconds failed noop": 3, "step_seconds done dhcp": 3})
	after, err := c.reg.Gather()
	r.must(err)
	if len(after) < len(before) || len(after) > len(before)+1 {
		t.Errorf("%d metrics, before %d", len(after), len(before))
	}
}
