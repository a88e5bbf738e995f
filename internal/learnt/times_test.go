package learnt_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/learnt"
)

func names(times []trivet.StepTime) (all []string) {
	for _, t := range times {
		all = append(all, t.Step)
	}
	return all
}

// The times of a step are those of its model; of few, those of all machines; of an action that is not known, those of
// its use. Late is a step of the model only, of which many are known.
func TestTimes(t *testing.T) {
	w, none := workflow(trivet.WorkflowBooting), []trivet.StepTime(nil)
	steps := []string{trivet.StepDHCP, "write", trivet.StepFirstBoot}
	other := workflow(trivet.WorkflowBooting)
	other.Spec.Template = "other"
	unknown := workflow(trivet.WorkflowBooting)
	unknown.Spec.Template, unknown.Spec.Actions[0].Use = "other", "seed"
	for name, tc := range map[string]struct {
		book  *learnt.Book
		model string
		w     *trivet.Workflow
		known []string
		late  bool
	}{
		"nothing":               {&learnt.Book{}, "Dell", w, names(none), false},
		"too few":               {runs(2, "Dell"), "Dell", w, names(none), false},
		"of the model":          {runs(3, "Dell"), "Dell", w, steps, false},
		"of other models":       {runs(200, "HP"), "Dell", w, steps, false},
		"of another template":   {runs(200, "Dell"), "Dell", other, steps, true},
		"an action not known":   {runs(200, "Dell"), "Dell", unknown, []string{"dhcp", "first-boot"}, true},
		"enough to say it late": {runs(100, "Dell"), "Dell", w, steps, true},
	} {
		got := tc.book.Times(tc.model, tc.w, 30*time.Second)
		if !slices.Equal(names(got), tc.known) {
			t.Errorf("%s: times of %v, want of %v", name, names(got), tc.known)
		}
		for _, s := range got {
			late := tc.late && (s.Step != "write" || tc.w == w)
			if s.P50 < trivet.Duration(minute) || s.P95 < s.P50 || s.Late > 0 != late {
				t.Errorf("%s: %+v, late: %v", name, s, late)
			}
		}
	}
}

// Late is never less than the least time for it, and never as much as the timeout.
func TestLateIsBounded(t *testing.T) {
	w := workflow(trivet.WorkflowBooting)
	for _, s := range runs(200, "Dell").Times("Dell", w, w.Status.Steps[0].Timeout.D()) {
		if s.Late != 0 {
			t.Errorf("late at the timeout: %+v", s)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		b := &learnt.Book{}
		for range rapid.IntRange(90, 200).Draw(t, "runs") {
			w := workflow(trivet.WorkflowSucceeded)
			w.Status.Steps[1].Elapsed = trivet.Duration(rapid.IntRange(1, 4000).Draw(t, "s")) * trivet.Duration(time.Second)
			b.Add(ended("Dell", w))
		}
		w := workflow(trivet.WorkflowBooting)
		w.Status.Steps[1].Timeout = trivet.Duration(rapid.IntRange(1, 4000).Draw(t, "timeout")) * trivet.Duration(time.Second)
		least := time.Duration(rapid.IntRange(0, 4000).Draw(t, "least")) * time.Second
		for _, s := range b.Times("Dell", w, least) {
			timeout := w.Status.Step(s.Step).Timeout
			if s.P50 > s.P95 || s.P95 > timeout || s.Late >= timeout ||
				s.Late != 0 && (s.Late.D() < least || s.Late < s.P95) {
				t.Fatalf("%+v of at least %s and at most %s", s, least, timeout)
			}
		}
	})
}

// What is left of a run is what its steps take that are not done, less what has passed of the running one.
func TestRemaining(t *testing.T) {
	s, now := trivet.Duration(time.Second), time.Unix(1000, 0)
	times := []trivet.StepTime{{Step: "dhcp", P50: 60 * s, P95: 100 * s}, {Step: "write", P50: 300 * s, P95: 330 * s},
		{Step: "first-boot", P50: 120 * s, P95: 120 * s}}
	run := func(passed time.Duration, states ...trivet.StepState) *trivet.Workflow {
		w := workflow(trivet.WorkflowRunning)
		w.Spec.Times = times
		for i, state := range states {
			w.Status.Steps[i].State, w.Status.Steps[i].Started = state, now.Add(-passed)
		}
		return w
	}
	unknown := run(0, trivet.StepDone, trivet.StepRunning, trivet.StepWaiting)
	unknown.Spec.Times = times[:2]
	over := run(0, trivet.StepDone, trivet.StepDone, trivet.StepDone)
	over.Status.State = trivet.WorkflowSucceeded
	const running, waiting, done, skipped = trivet.StepRunning, trivet.StepWaiting, trivet.StepDone, trivet.StepSkipped
	for name, tc := range map[string]struct {
		w    *trivet.Workflow
		want learnt.ETA
		ok   bool
	}{
		"it begins":              {run(0, running, waiting, waiting), learnt.ETA{P50: 480 * s, P95: 530 * s}, true},
		"within the second":      {run(100*time.Second, done, running, waiting), learnt.ETA{P50: 320 * s, P95: 350 * s}, true},
		"longer than usual":      {run(315*time.Second, done, running, waiting), learnt.ETA{P50: 120 * s, P95: 135 * s}, true},
		"longer than nearly all": {run(999*time.Second, done, running, waiting), learnt.ETA{P50: 120 * s, P95: 120 * s}, true},
		"a clock is behind":      {run(-time.Hour, done, running, waiting), learnt.ETA{P50: 420 * s, P95: 450 * s}, true},
		"skipped":                {run(0, skipped, skipped, running), learnt.ETA{P50: 120 * s, P95: 120 * s}, true},
		"not known":              {unknown, learnt.ETA{}, false},
		"it has ended":           {over, learnt.ETA{}, false},
		"nothing was learnt":     {workflow(trivet.WorkflowRunning), learnt.ETA{}, false},
	} {
		if got, ok := learnt.Remaining(tc.w, now); ok != tc.ok || got != tc.want {
			t.Errorf("%s: %+v, %v; want %+v", name, got, ok, tc.want)
		}
	}
}

func TestReport(t *testing.T) {
	b := runs(100, "Dell")
	got := b.Report()
	if len(got) != 2 || got[0].Name != learnt.All || got[1].Name != "Dell" || got[1].Runs != 100 {
		t.Fatalf("%+v", got)
	}
	want := []string{"default/t/write", "dhcp", "first-boot", "image"}
	if diff := cmp.Diff(want, names(got[1].Steps)); diff != "" || got[1].Steps[0].Late == 0 {
		t.Errorf("%s, %+v", diff, got[1].Steps[0])
	}
}
