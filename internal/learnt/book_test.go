package learnt_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/learnt"
)

const minute = time.Minute

// workflow is a run of template t with the steps dhcp, image and first-boot.
func workflow(state trivet.WorkflowState) *trivet.Workflow {
	hour := trivet.Duration(time.Hour)
	return &trivet.Workflow{
		Meta: trivet.Meta{Project: "default", Name: "w-1"},
		Spec: trivet.WorkflowSpec{Template: "t", Actions: []trivet.Action{{Name: "write", Use: "image"}}},
		Status: trivet.WorkflowStatus{State: state, Steps: []trivet.Step{
			{Name: trivet.StepDHCP, State: trivet.StepDone, Timeout: hour},
			{Name: "write", State: trivet.StepDone, Elapsed: trivet.Duration(5 * minute), Timeout: hour},
			{Name: trivet.StepFirstBoot, State: trivet.StepDone, Timeout: hour}}},
	}
}

// ended is a run on a machine of a model.
func ended(model string, w *trivet.Workflow) learnt.Run {
	boot := map[string]time.Duration{trivet.StepDHCP: minute, trivet.StepFirstBoot: 2 * minute}
	return learnt.RunOf(w, &trivet.Inventory{Vendor: model}, boot)
}

func runs(n int, model string) *learnt.Book {
	b := &learnt.Book{}
	for range n {
		b.Add(ended(model, workflow(trivet.WorkflowSucceeded)))
	}
	return b
}

// What was learnt of a run: the steps that are done, boot steps as the head measured them, actions as the agent did, by
// template and use. It counts for its model and for all.
func TestRunOf(t *testing.T) {
	w := workflow(trivet.WorkflowFailed)
	w.Status.Failure = &trivet.Failure{Type: "sunspots"}
	w.Status.Steps[0].State = trivet.StepFailed
	w.Status.Steps[1].Elapsed = trivet.Duration(100 * time.Hour) // an agent may report anything
	want := learnt.Run{Model: "Dell", Failure: "other", Steps: []learnt.Took{
		{Keys: []string{"default/t/write", "image"}, Time: time.Hour},
		{Keys: []string{trivet.StepFirstBoot}, Time: 2 * minute}}}
	if diff := cmp.Diff(want, ended(" Dell ", w)); diff != "" {
		t.Error(diff)
	}
	b := &learnt.Book{}
	b.Add(ended("Dell", w))
	w = workflow(trivet.WorkflowCancelled)
	b.Add(ended("HP", w)) // which is no run that failed or succeeded; its steps count
	for name, runs := range map[string]float64{learnt.All: 1, "Dell": 1, "HP": 0} {
		if m := b.Models[name]; m == nil || m.Runs != runs || m.Failures["other"] != runs {
			t.Errorf("model %q: %+v", name, m)
		}
	}
	if got := b.Models[learnt.All].Steps["image"].Weight(); got != 2 {
		t.Errorf("of image %v are known", got)
	}
}

func TestModelOf(t *testing.T) {
	for want, inv := range map[string]*trivet.Inventory{
		"unknown": nil, "Dell Inc. R650": {Vendor: "Dell  Inc.", Product: " R650"}, "a?b": {Vendor: "a\x1bb"},
		strings.Repeat("é", 32): {Vendor: strings.Repeat("é", 100)},
	} {
		if got := learnt.ModelOf(inv); got != want {
			t.Errorf("%+v: %q, want %q", inv, got, want)
		}
	}
}

func book(t *rapid.T, label string) *learnt.Book {
	b := &learnt.Book{Day: rapid.IntRange(0, 20).Draw(t, label+" day")}
	for range rapid.IntRange(0, 20).Draw(t, label+" runs") {
		w := workflow(rapid.SampledFrom([]trivet.WorkflowState{trivet.WorkflowSucceeded, trivet.WorkflowFailed,
			trivet.WorkflowCancelled}).Draw(t, label+" state"))
		if w.Status.State == trivet.WorkflowFailed {
			w.Status.Failure = &trivet.Failure{Type: trivet.FaultMachine}
		}
		w.Spec.Template = rapid.StringMatching("t[0-9]{1,2}").Draw(t, label+" template")
		w.Status.Steps[1].Elapsed = trivet.Duration(rapid.IntRange(1, 3_600_000).Draw(t, label+" ms")) * 1_000_000
		b.Add(ended(rapid.StringMatching("m[0-9]{1,2}").Draw(t, label+" model"), w))
	}
	return b
}

// Two books are the same in whichever order they are merged, and neither is changed.
func TestMergeIsCommutative(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x, y, day := book(t, "x"), book(t, "y"), rapid.IntRange(0, 40).Draw(t, "day")
		before := string(x.Encode()) + string(y.Encode())
		xy, yx := learnt.Merge(day, x, y), learnt.Merge(day, y, x)
		if diff := cmp.Diff(xy, yx); diff != "" {
			t.Fatal(diff)
		}
		if got := string(x.Encode()) + string(y.Encode()); got != before {
			t.Fatalf("%s was changed to %s", before, got)
		}
		if day >= max(x.Day, y.Day) && xy.Models[learnt.All] != nil {
			sum := 0.0
			for _, b := range []*learnt.Book{x, y} {
				if m := b.At(day).Models[learnt.All]; m != nil {
					sum += m.Runs
				}
			}
			if got := xy.Models[learnt.All].Runs; math.Abs(got-sum) > 1e-9 {
				t.Fatalf("%v runs, want %v", got, sum)
			}
		}
	})
}

// Weights have half after 30 days, do not grow when a clock is behind, and are gone in the end.
func TestDecay(t *testing.T) {
	b := runs(8, "Dell")
	b.Day = 100
	for day, want := range map[int]float64{100: 8, 130: 4, 160: 2, 90: 8, -5: 8} {
		later := b.At(day)
		m := later.Models["Dell"]
		if m == nil || math.Abs(m.Runs-want) > 1e-9 || math.Abs(m.Steps["image"].Weight()-want) > 1e-9 || later.Day != day {
			t.Errorf("on day %d: %+v, want %v", day, m, want)
		}
	}
	if gone := b.At(500); len(gone.Models) != 0 {
		t.Errorf("after a year there is %+v", gone.Models)
	}
}

// A book is bounded, whatever models and templates there are. What is new is counted, and what has the most weight is
// kept.
func TestBookIsBounded(t *testing.T) {
	b := runs(5, "Dell")
	for i := range 200 {
		w := workflow(trivet.WorkflowSucceeded)
		w.Spec.Template = fmt.Sprint("t", i)
		b.Add(ended("Dell", w))
		b.Add(ended(fmt.Sprint("m", i), w))
		last := "default/" + w.Spec.Template + "/write"
		if len(b.Models) > learnt.MaxModels+1 || len(b.Models["Dell"].Steps) > learnt.MaxSteps ||
			b.Models["Dell"].Steps[last] == nil || b.Models[fmt.Sprint("m", i)] == nil {
			t.Fatalf("after %d: %d models, %d steps", i, len(b.Models), len(b.Models["Dell"].Steps))
		}
	}
	dell, all := b.Models["Dell"], b.Models[learnt.All]
	if all.Runs != 405 || dell.Runs != 205 || dell.Steps["image"].Weight() != 205 ||
		dell.Steps["default/t/write"].Weight() != 5 {
		t.Errorf("%v runs; of Dell %v: %v", all.Runs, dell.Runs, dell.Steps)
	}
}

// An encoded book is read as it was written, and has a bounded length.
func TestBookIsStored(t *testing.T) {
	b := runs(3, "Dell")
	got, err := learnt.Decode(b.Encode())
	if err != nil || cmp.Diff(b, got) != "" {
		t.Errorf("%v, %s", err, cmp.Diff(b, got))
	}
	for _, bad := range []string{"", "[]", `{"models":{"x":null}}`, `{"models":{"x":{"runs":-1}}}`,
		`{"models":{"x":{"steps":{"a":[[900,1]]}}}}`} {
		if _, err := learnt.Decode([]byte(bad)); err == nil {
			t.Errorf("%q is taken for a book", bad)
		}
	}
	large := &learnt.Book{Models: map[string]*learnt.Model{}}
	for i := range learnt.MaxModels + 1 {
		m := &learnt.Model{Runs: float64(i + 1), Steps: map[string]learnt.Histogram{}}
		for j := range learnt.MaxSteps {
			h := learnt.Histogram{}
			for bucket := range 60 {
				h[bucket] = 1234.567
			}
			m.Steps[fmt.Sprint("step", j)] = h
		}
		large.Models[fmt.Sprint("m", i)] = m
	}
	large.Models[learnt.All] = large.Models["m0"]
	doc := large.Encode()
	got, err = learnt.Decode(doc)
	if err != nil || len(doc) > learnt.MaxDocument || got.Models["m50"] == nil || got.Models["m1"] != nil ||
		got.Models[learnt.All] == nil {
		t.Errorf("%d bytes with %d models, %v", len(doc), len(got.Models), err)
	}
}
