package learnt

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/trivet-project/trivet"
)

// How much must be known before it is used.
const (
	minKnown = 3   // ended steps, to say how long another one takes
	minLate  = 100 // ended steps on machines of the model, to say that another one is late
)

// Times returns how long the steps of a run took before on machines of its model, and otherwise on all machines: first
// the same action of the same template, then any action with the same use. Steps of which too few are known are left
// out. lateAfter is the least time after which a step may be late.
func (b *Book) Times(model string, w *trivet.Workflow, lateAfter time.Duration) (all []trivet.StepTime) {
	for _, step := range w.Status.Steps {
		keys := stepKeys(w, step.Name)
		h := b.of(model, keys[0])
		late := lateOf(h, lateAfter)
		for _, from := range slices.Concat([]Histogram{h, b.of(All, keys[0])}, b.ofUse(model, keys)) {
			if known(from) >= minKnown {
				all = append(all, stepTime(step.Name, from, step.Timeout.D(), late))
				break
			}
		}
	}
	return all
}

// ofUse returns the histograms of an action's use; none of a boot step.
func (b *Book) ofUse(model string, keys []string) (all []Histogram) {
	for _, key := range keys[1:] {
		all = append(all, b.of(model, key), b.of(All, key))
	}
	return all
}

func (b *Book) of(model, key string) Histogram {
	if m := b.Models[model]; m != nil {
		return m.Steps[key]
	}
	return nil
}

// known returns the number of durations in a histogram, less what the older ones have lost.
func known(h Histogram) int { return int(math.Round(h.Weight())) }

// lateOf returns after how long a step is late; 0 where too few are known.
func lateOf(h Histogram, lateAfter time.Duration) time.Duration {
	if known(h) < minLate {
		return 0
	}
	return max(h.Quantile(0.999), lateAfter)
}

// stepTime returns what is known of a step, of which nothing is longer than its timeout: the deadline comes first.
func stepTime(name string, h Histogram, timeout, late time.Duration) trivet.StepTime {
	if late >= timeout {
		late = 0
	}
	return trivet.StepTime{Step: name, P50: trivet.Duration(min(h.Quantile(0.5), timeout)),
		P95: trivet.Duration(min(h.Quantile(0.95), timeout)), Late: trivet.Duration(late), Runs: known(h)}
}

// ETA is how long a run still takes.
type ETA struct {
	P50 trivet.Duration `json:"p50"` // as half of the earlier ones
	P95 trivet.Duration `json:"p95"` // as 95 % of the earlier ones, at most
}

// Remaining returns how long a run still takes, by the times of its steps; false where it has ended, or a step is left
// of which nothing is known.
func Remaining(w *trivet.Workflow, now time.Time) (ETA, bool) {
	if w.Status.State.Ended() || len(w.Spec.Times) == 0 {
		return ETA{}, false
	}
	var sum, squares float64 // of the medians, and of what 95 % take more than these
	for i := range w.Status.Steps {
		step := &w.Status.Steps[i]
		if step.State != trivet.StepWaiting && step.State != trivet.StepRunning {
			continue
		}
		t := w.Spec.StepTime(step.Name)
		if t == nil {
			return ETA{}, false
		}
		passed := time.Duration(0)
		if step.State == trivet.StepRunning {
			passed = max(0, now.Sub(step.Started))
		}
		p50 := max(0, t.P50.D()-passed)
		p95 := max(p50, t.P95.D()-passed)
		sum += float64(p50)
		squares += float64(p95-p50) * float64(p95-p50)
	}
	return ETA{trivet.Duration(forPeople(time.Duration(sum))),
		trivet.Duration(forPeople(time.Duration(sum + math.Sqrt(squares))))}, true
}

// Report returns what a book has learnt of each model, all machines first, and then by name.
func (b *Book) Report() []trivet.Model {
	all := []trivet.Model{} // of an empty book it is []
	for _, name := range slices.Sorted(maps.Keys(b.Models)) {
		m := b.Models[name]
		report := trivet.Model{Name: name, Runs: rounded(m.Runs), Avoided: b.Avoids(name)}
		for f, weight := range m.Failures {
			if report.Failures == nil {
				report.Failures = map[trivet.FailureType]float64{}
			}
			report.Failures[f] = rounded(weight)
		}
		for key, h := range m.Steps {
			if t := stepTime(key, h, math.MaxInt64, lateOf(h, 0)); t.Runs >= minKnown {
				report.Steps = append(report.Steps, t)
			}
		}
		slices.SortFunc(report.Steps, func(x, y trivet.StepTime) int { return cmp.Compare(x.Step, y.Step) })
		all = append(all, report)
	}
	return all
}
