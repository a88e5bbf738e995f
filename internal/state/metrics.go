package state

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/learnt"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/workflow"
)

// counts are the numbers of records that metrics show, counted with each change of the copy: collecting them reads no
// record but the oldest provision that waits, whatever the number of machines.
type counts struct {
	machines, models *store.Tally[trivet.Machine]
	provisions       *store.Tally[trivet.Provision]
	running          *store.Tally[trivet.Provision] // by project
	paused           *store.Tally[trivet.Provision]
}

func newCounts(t *Tables) counts {
	return counts{
		machines:   store.NewTally(t.Machines, func(m *trivet.Machine) string { return string(m.Status.State) }),
		models:     store.NewTally(t.Machines, model),
		provisions: store.NewTally(t.Provisions, provisionState),
		running:    store.NewTally(t.Provisions, runningIn),
		paused: store.NewTally(t.Provisions, func(p *trivet.Provision) string {
			if p.Status.Paused == nil {
				return ""
			}
			return provisionState(p)
		}),
	}
}

// provisionState leaves out a provision with spec.count: its members are counted.
func provisionState(p *trivet.Provision) string {
	if p.Spec.Count != nil {
		return ""
	}
	return string(cmp.Or(p.Status.State, trivet.ProvisionPending))
}

// runningIn returns the project of a provision that runs on a machine.
func runningIn(p *trivet.Provision) string {
	if provisionState(p) != string(trivet.ProvisionRunning) {
		return ""
	}
	return p.Project
}

// Bounds of label model: how many models have a value of their own, and how many have had one since the head started, as
// agents report them.
const (
	maxModels = 50
	maxShown  = 4 * maxModels
)

// model returns vendor and product of a machine, as its agent has reported them. One that enrolled itself has none
// until it is accepted: anyone in the boot network may send a hello.
func model(m *trivet.Machine) string {
	if workflow.StateOf(&m.Status) == trivet.MachineDiscovered {
		return ""
	}
	return learnt.ModelOf(m.Status.Inventory)
}

// largest returns the most frequent models; all others together are "other". It adds to before, which has those that
// were shown before.
func largest(models map[string]int, before map[string]bool) map[string]int {
	type model struct {
		name string
		n    int
	}
	var shown []model // in order
	rest := 0
	for name, n := range models {
		m := model{name, n}
		i, _ := slices.BinarySearchFunc(shown, m, func(a, b model) int {
			return cmp.Or(cmp.Compare(b.n, a.n), cmp.Compare(a.name, b.name))
		})
		shown = slices.Insert(shown, i, m)
		if len(shown) > maxModels {
			rest += shown[maxModels].n
			shown = shown[:maxModels]
		}
	}
	counts := map[string]int{}
	for _, m := range shown {
		if !before[m.name] && len(before) >= maxShown {
			rest += m.n
			continue
		}
		counts[m.name], before[m.name] = m.n, true
	}
	if rest > 0 {
		counts["other"] += rest
	}
	return counts
}

var (
	machinesDesc = prometheus.NewDesc("trivet_machines",
		"Machines by state, in this head's copy: each head shows those of the site.", []string{"state"}, nil)
	modelsDesc = prometheus.NewDesc("trivet_machines_by_model",
		"Accepted machines by vendor and product, the 50 most frequent ones, and at most 200 since "+
			"the head started; the rest is other.", []string{"model"}, nil)
	provisionsDesc = prometheus.NewDesc("trivet_provision_records",
		"Provisions by state, in this head's copy. Those that are pending are the queue: they wait for a machine.",
		[]string{"state"}, nil)
	pausedDesc = prometheus.NewDesc("trivet_provisions_paused",
		"Provisions that are paused, by state (pending, running), in this head's copy.", []string{"state"}, nil)
	oldestDesc = prometheus.NewDesc("trivet_provision_oldest_pending_seconds",
		"Time since the oldest pending provision that is not paused was created; 0 where there is none.", nil, nil)
)

var (
	machineStates = []trivet.MachineState{trivet.MachineDiscovered, trivet.MachineAvailable, trivet.MachineClaimed,
		trivet.MachineProvisioning, trivet.MachineActive, trivet.MachineReleasing, trivet.MachineQuarantined,
		trivet.MachineUnverified}
	provisionStates = []trivet.ProvisionState{trivet.ProvisionPending, trivet.ProvisionRunning,
		trivet.ProvisionSucceeded, trivet.ProvisionFailed, trivet.ProvisionFrozen}
)

// collector collects the numbers of machines and provisions.
type collector struct {
	tables *Tables

	mu     sync.Mutex
	models map[string]bool // guarded by mu; those that were shown
}

// NewCollector returns the metrics of machines and provisions.
func NewCollector(t *Tables) prometheus.Collector {
	return &collector{tables: t, models: map[string]bool{}}
}

func (c *collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{machinesDesc, modelsDesc, provisionsDesc, pausedDesc, oldestDesc} {
		to <- d
	}
}

func (c *collector) Collect(to chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	machines, provisions := c.tables.counts.machines.Counts(), c.tables.counts.provisions.Counts()
	for _, s := range machineStates {
		gauge(machinesDesc, float64(machines[string(s)]), string(s))
	}
	for name, n := range largest(c.tables.counts.models.Counts(), c.models) {
		gauge(modelsDesc, float64(n), name)
	}
	for _, s := range provisionStates {
		gauge(provisionsDesc, float64(provisions[string(s)]), string(s))
	}
	paused := c.tables.counts.paused.Counts()
	for _, s := range []trivet.ProvisionState{trivet.ProvisionPending, trivet.ProvisionRunning} {
		gauge(pausedDesc, float64(paused[string(s)]), string(s))
	}
	waited := time.Duration(0)
	if oldest := first(c.tables.Provisions.Under(ByAge, "", store.Position{})); oldest != nil {
		waited = max(0, time.Since(oldest.Created))
	}
	gauge(oldestDesc, waited.Seconds())
}
