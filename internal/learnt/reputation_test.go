package learnt_test

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/learnt"
)

const halfLife = time.Duration(trivet.ReputationHalfLife)

// A failure that turns out to be of another type does not count as the first one any more; earlier ones do.
func TestCorrectedFailure(t *testing.T) {
	now := time.Unix(1e9, 0)
	for name, tc := range map[string]struct{ faults, want float64 }{"the only one": {1, 0}, "a second one": {2, 1}} {
		var r *trivet.Reputation
		for range int(tc.faults) {
			r = learnt.AddFailure(r, trivet.FaultMachine, now)
		}
		r = learnt.CorrectFailure(r, trivet.FaultMachine, trivet.FaultPlatform, now)
		if got := learnt.Failures(r, now); got[trivet.FaultMachine] != tc.want || got[trivet.FaultPlatform] != 1 {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// A failure has half of its weight after the half-life, and does not matter after ten weeks. Faults of what machines
// share are counted and are not the machine's.
func TestReputation(t *testing.T) {
	now := time.Unix(1e9, 0)
	r := learnt.AddFailure(nil, trivet.FaultMachine, now)
	r = learnt.AddFailure(r, trivet.FaultImage, now)
	r = learnt.AddFailure(r, "sunspots", now)
	after := learnt.AddFailure(r, trivet.FaultMachine, now.Add(halfLife))
	behind := learnt.AddFailure(r, trivet.FaultMachine, now.Add(-halfLife))
	for name, tc := range map[string]struct {
		r    *trivet.Reputation
		at   time.Time
		want float64
	}{
		"none":              {nil, now, 0},
		"one":               {r, now, 1},
		"after two weeks":   {r, now.Add(halfLife), 0.5},
		"after ten weeks":   {r, now.Add(71 * 24 * time.Hour), 0},
		"before":            {r, now.Add(-halfLife), 1},
		"another one":       {after, now.Add(halfLife), 1.5},
		"a clock is behind": {behind, now.Add(-halfLife), 2},
	} {
		if got := learnt.Faults(tc.r, tc.at); math.Abs(got-tc.want) > 0.01 {
			t.Errorf("%s: %v faults, want %v", name, got, tc.want)
		}
	}
	if got := learnt.Failures(r, now); len(got) != 3 || got[trivet.FaultImage] != 1 || got["other"] != 1 {
		t.Errorf("all failures: %v", got)
	}
	if len(r.Failures) != 3 || r.Failures[trivet.FaultMachine] != 1 {
		t.Errorf("a failure changed what it was added to: %v", r.Failures)
	}
}

// Whatever fails and whenever, a reputation is bounded, and more faults are not less.
func TestReputationIsBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var r *trivet.Reputation
		now := time.Unix(1e9, 0)
		for range rapid.IntRange(1, 100).Draw(t, "failures") {
			now = now.Add(time.Duration(rapid.IntRange(-100, 1000).Draw(t, "hours")) * time.Hour)
			before := learnt.Faults(r, now)
			r = learnt.AddFailure(r, trivet.FailureType(rapid.StringMatching("machine|image|[a-z]{3}").Draw(t, "type")), now)
			if got := learnt.Faults(r, now); len(r.Failures) > 7 || got < before-0.04 {
				t.Fatalf("%v faults after %v: %v", got, before, r.Failures)
			}
		}
	})
}

// A model is avoided where its machines fail clearly more often than those of other models, by their own fault.
func TestAvoidedModels(t *testing.T) {
	add := func(b *learnt.Book, model string, good, bad int, f trivet.FailureType) {
		for range good {
			b.Add(learnt.Run{Model: model, Succeeded: true})
		}
		for range bad {
			b.Add(learnt.Run{Model: model, Failure: f})
		}
	}
	for name, tc := range map[string]struct {
		good, bad, otherGood, otherBad int
		fault                          trivet.FailureType
		want                           bool
	}{
		"often":                 {10, 5, 100, 2, trivet.FaultMachine, true},
		"too few are known":     {2, 2, 100, 2, trivet.FaultMachine, false},
		"seldom":                {95, 5, 100, 0, trivet.FaultMachine, false},
		"as others":             {10, 5, 20, 8, trivet.FaultMachine, false},
		"by an image":           {10, 5, 100, 2, trivet.FaultImage, false},
		"too few others":        {10, 5, 5, 0, trivet.FaultMachine, false},
		"there is no other one": {10, 5, 0, 0, trivet.FaultMachine, false},
	} {
		b := &learnt.Book{}
		add(b, "bad", tc.good, tc.bad, tc.fault)
		add(b, "other", tc.otherGood, tc.otherBad, trivet.FaultMachine)
		if got := b.Avoids("bad"); got != tc.want || b.Avoids(learnt.All) || b.Avoids("new") {
			t.Errorf("%s: avoided: %v", name, got)
		}
	}
}
