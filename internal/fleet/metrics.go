package fleet

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/trivet-project/trivet"
)

// Metrics count what becomes of runs and provisions, each by the head whose transaction decided it, so that the sum of
// all heads is that of the site. What was written by a transaction whose outcome stays unknown is not counted. Every
// label has few values, whatever users and agents send.
type Metrics struct {
	runs, provisions *prometheus.CounterVec   // by outcome and cause
	seconds          *prometheus.HistogramVec // by step and result
	retries, late    *prometheus.CounterVec   // by step
	lost, switches   prometheus.Counter
	races            *prometheus.CounterVec // by outcome
}

// NewMetrics returns registered metrics, with all counters at 0.
func NewMetrics(to prometheus.Registerer) *Metrics {
	m := &Metrics{
		runs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "trivet_runs_total",
			Help: "Runs that ended by this head's decision, by outcome (succeeded, failed, cancelled) and cause of a " +
				"failure (machine, platform, image, network, configuration, control-plane, other; else none).",
		}, []string{"outcome", "cause"}),
		provisions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "trivet_provisions_total",
			Help: "Provisions that ended by this head's decision, by outcome and cause, as runs; one that was deleted " +
				"before it ended is not counted.",
		}, []string{"outcome", "cause"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "trivet_step_seconds",
			Help: "Duration of the last attempt of a step that ended, by boot step or by the `use` of an action, and " +
				"result (done, failed). Agents measure actions; heads measure boot steps by their clocks.",
			Buckets: prometheus.ExponentialBuckets(0.25, 2, 15),
		}, []string{"step", "result"}),
		retries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "trivet_step_retries_total",
			Help: "Attempts of a step after its first one, by boot step or by the `use` of an action.",
		}, []string{"step"}),
		late: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "trivet_steps_late_total",
			Help: "Attempts of steps that were reported as late: they took longer than 99.9 % of the earlier ones on " +
				"machines of their model, by boot step or by the `use` of an action.",
		}, []string{"step"}),
		lost: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "trivet_agents_lost_total",
			Help: "Agents that were lost during a run, which went on with another one or failed.",
		}),
		switches: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "trivet_provision_switches_total",
			Help: "Provisions that went on with another machine, as theirs was at fault.",
		}),
		races: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "trivet_provision_races_total",
			Help: "Provisions whose second machine began to install them (started), which one machine won (won), or of " +
				"which one machine failed or was cancelled (failed).",
		}, []string{"outcome"}),
	}
	for _, v := range []*prometheus.CounterVec{m.runs, m.provisions} {
		v.WithLabelValues(string(trivet.WorkflowSucceeded), noCause)
		v.WithLabelValues(string(trivet.WorkflowCancelled), noCause)
		for _, cause := range causes {
			v.WithLabelValues(string(trivet.WorkflowFailed), string(cause))
		}
	}
	for _, step := range slices.Concat(trivet.BootSteps, trivet.ActionUses) {
		m.retries.WithLabelValues(step)
		m.late.WithLabelValues(step)
	}
	for _, outcome := range []string{"started", "won", "failed"} {
		m.races.WithLabelValues(outcome)
	}
	to.MustRegister(m.runs, m.provisions, m.seconds, m.retries, m.late, m.lost, m.switches, m.races)
	return m
}

// The values of label cause. An agent reports the cause as text.
const noCause, otherCause = "none", "other"

var causes = []trivet.FailureType{trivet.FaultMachine, trivet.FaultPlatform, trivet.FaultImage, trivet.FaultNetwork,
	trivet.FaultConfiguration, trivet.FaultControlPlane, otherCause}

// outcomeOf returns the labels of a run or provision that ended.
func outcomeOf(succeeded bool, f *trivet.Failure) (outcome, cause string) {
	switch {
	case succeeded:
		return string(trivet.WorkflowSucceeded), noCause
	case f == nil:
		return string(trivet.WorkflowCancelled), noCause
	case slices.Contains(causes, f.Type):
		return string(trivet.WorkflowFailed), string(f.Type)
	}
	return string(trivet.WorkflowFailed), otherCause
}

// stepLabel returns the value of label step.
func stepLabel(spec *trivet.WorkflowSpec, step string) string {
	if a := spec.Action(step); a != nil && slices.Contains(trivet.ActionUses, a.Use) {
		return a.Use
	} else if a == nil && (trivet.IsBootStep(step) || step == trivet.StepPowerOff) {
		return step
	}
	return "other"
}

// transition counts what a transition has changed in its run.
func (m *Metrics) transition(spec *trivet.WorkflowSpec, was, is *trivet.WorkflowStatus) {
	m.lost.Add(float64(max(0, is.Resets-was.Resets)))
	for i := range is.Steps {
		if before := was.Step(is.Steps[i].Name); before != nil {
			m.step(stepLabel(spec, before.Name), trivet.IsBootStep(before.Name), before, &is.Steps[i])
		}
	}
	if is.State.Ended() && !was.State.Ended() {
		m.runs.WithLabelValues(outcomeOf(is.State == trivet.WorkflowSucceeded, is.Failure)).Inc()
	}
}

// step counts a change of a step. A boot step that was not running was passed without being noticed: its duration is
// not known.
func (m *Metrics) step(label string, boot bool, was, is *trivet.Step) {
	if n := is.Attempt - max(1, was.Attempt); n > 0 {
		m.retries.WithLabelValues(label).Add(float64(n))
	}
	if is.Late > was.Late {
		m.late.WithLabelValues(label).Inc()
	}
	ended := is.State == trivet.StepDone || is.State == trivet.StepFailed
	if !ended || is.State == was.State || boot && was.State != trivet.StepRunning {
		return
	}
	took := is.Elapsed.D()
	if boot || took == 0 { // it was not reported
		took = is.Ended.Sub(is.Started)
	}
	took = min(max(0, took), is.Timeout.D()+time.Minute) // whatever an agent or another head's clock says
	m.seconds.WithLabelValues(label, string(is.State)).Observe(took.Seconds())
}

// provision counts a provision that ended, or goes on with another machine.
func (m *Metrics) provision(st *trivet.ProvisionStatus) {
	if !st.State.Ended() {
		m.switches.Inc()
		return
	}
	m.provisions.WithLabelValues(outcomeOf(st.State == trivet.ProvisionSucceeded, st.Failure)).Inc()
}
