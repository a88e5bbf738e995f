package learnt

import (
	"maps"
	"math"
	"time"

	"github.com/trivet-project/trivet"
)

// AddFailure returns the reputation of a machine after a run of it failed. A clock that is behind lets nothing decay.
func AddFailure(r *trivet.Reputation, failure trivet.FailureType, now time.Time) *trivet.Reputation {
	next := &trivet.Reputation{Failures: map[trivet.FailureType]float64{}, Time: now}
	if r != nil {
		maps.Copy(next.Failures, r.Failures)
		scaleAll(next.Failures, decay(now.Sub(r.Time)))
	}
	next.Failures[knownType(failure)]++
	for f, weight := range next.Failures {
		next.Failures[f] = rounded(weight)
	}
	return next
}

// CorrectFailure returns the reputation of a machine after a failure turned out to be of another type.
func CorrectFailure(r *trivet.Reputation, was, is trivet.FailureType, now time.Time) *trivet.Reputation {
	next := AddFailure(r, is, now)
	if next.Failures[was] = max(next.Failures[was]-1, 0); next.Failures[was] < forgotten {
		delete(next.Failures, was)
	}
	return next
}

func decay(passed time.Duration) float64 {
	return math.Exp2(-max(passed, 0).Seconds() / trivet.ReputationHalfLife.D().Seconds())
}

// Failures returns the failures of a machine by type with their weights now; those that are forgotten are left out.
func Failures(r *trivet.Reputation, now time.Time) map[trivet.FailureType]float64 {
	if r == nil {
		return nil
	}
	all := maps.Clone(r.Failures)
	by := decay(now.Sub(r.Time))
	for f := range all {
		if all[f] *= by; all[f] < forgotten {
			delete(all, f)
		}
	}
	return all
}

// Faults returns the failures that were the machine's own fault, with their weight now: 0 is a good reputation.
func Faults(r *trivet.Reputation, now time.Time) float64 {
	return Failures(r, now)[trivet.FaultMachine]
}

const (
	// forgotten is the weight below which a failure does not matter: that of one after ten weeks.
	forgotten = 0.03

	// A model is avoided where this part of its runs failed by the fault of their machines, which is twice as many as
	// those of other models, and where so many of both are known.
	badRate   = 0.1
	minFaults = 3
	minOthers = 10
)

// Avoids reports whether machines of a model are used only where there is no other one: they fail clearly more often
// than others.
func (b *Book) Avoids(model string) bool {
	m, all := b.Models[model], b.Models[All]
	if model == All || m == nil || all == nil {
		return false
	}
	faults, others := m.Failures[trivet.FaultMachine], all.Runs-m.Runs
	if faults < minFaults || others < minOthers {
		return false
	}
	rate := faults / m.Runs
	return rate >= badRate && rate >= 2*(all.Failures[trivet.FaultMachine]-faults)/others
}
