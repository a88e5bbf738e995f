package trivet

import "time"

// StepTime is how long a step took in earlier runs, as it was known when the run began: of machines of the same model,
// or of all machines where too few of that model are known.
type StepTime struct {
	Step string   `json:"step"` // name of the step
	P50  Duration `json:"p50"`  // half of the earlier ones took at most this
	P95  Duration `json:"p95"`  // 95 % of the earlier ones took at most this
	// Late is when an attempt is reported as late: 99.9 % of the earlier ones took at most this. It is not less than
	// lateAfter of the site and less than the step's timeout; 0 where it is not known.
	Late Duration `json:"late,omitempty"`
	Runs int      `json:"runs"` // how many of the earlier ones are known; older ones have less weight
}

// StepTime returns what is known of a step's duration, or nil.
func (s *WorkflowSpec) StepTime(step string) *StepTime {
	for i := range s.Times {
		if s.Times[i].Step == step {
			return &s.Times[i]
		}
	}
	return nil
}

// Reputation is how often runs of a machine have failed. Each failure has half of its weight after
// [ReputationHalfLife].
type Reputation struct {
	// Failures are the failures by type, by their weight at Time. Those of type machine make placement prefer others.
	Failures map[FailureType]float64 `json:"failures"`
	Time     time.Time               `json:"time"` // of the last failure
}

// ReputationHalfLife is after how long a failure has half of its weight.
const ReputationHalfLife = Duration(14 * 24 * time.Hour)

// Model is what was learnt of the machines of a model, as one head knows it. Older runs have less weight.
type Model struct {
	Name string  `json:"name"` // vendor and product; empty: all machines
	Runs float64 `json:"runs"` // that succeeded or failed
	// Failures are the runs that failed, by type.
	Failures map[FailureType]float64 `json:"failures,omitempty"`
	// Avoided: its machines fail more often than others by their own fault; placement prefers others.
	Avoided bool `json:"avoided,omitempty"`
	// Steps are the boot steps, the actions by their use, and those of templates as PROJECT/TEMPLATE/ACTION.
	Steps []StepTime `json:"steps,omitempty"`
}
