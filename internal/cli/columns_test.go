package cli

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trivet-project/trivet"
)

// Every kind has a table, even of an empty record; a kind without columns of its own has the default ones.
func TestEveryKindHasColumns(t *testing.T) {
	for _, info := range trivet.Kinds {
		for name, c := range map[string]columns{"own": columnsFor(info), "default": defaultColumns(info)} {
			if got := len(c.row(info.New())); got != len(c.titles) {
				t.Errorf("%s, %s columns: %d cells under %d titles", info.Kind, name, got, len(c.titles))
			}
		}
	}
}

func TestDefaultColumns(t *testing.T) {
	info, err := trivet.LookupKind("machines")
	if err != nil {
		t.Fatal(err)
	}
	m := &trivet.Machine{
		Meta:   trivet.Meta{Labels: map[string]string{"b": "2", "a": "1"}, Created: time.Unix(0, 0)},
		Status: trivet.MachineStatus{State: trivet.MachineAvailable, Reason: "new"},
	}
	c := defaultColumns(info)
	if diff := cmp.Diff([]string{"STATE", "REASON", "LABELS", "CREATED"}, c.titles); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"available", "new", "a=1,b=2", "1970-01-01T00:00:00Z"}, c.row(m)); diff != "" {
		t.Error(diff)
	}
}

// The steps of a run that was cancelled are not all done, and a running step whose first agent was lost shows the time
// of the present attempt.
func TestStepsOfRuns(t *testing.T) {
	w := &trivet.Workflow{Status: trivet.WorkflowStatus{Steps: []trivet.Step{
		{Name: trivet.StepDHCP, State: trivet.StepSkipped}, {Name: "wipe", State: trivet.StepDone},
		{Name: "image", State: trivet.StepCancelled}}}}
	if got := stepsDone(w); got != "2/3" {
		t.Errorf("of a cancelled run %s steps are done", got)
	}
	hour := trivet.Duration(time.Hour)
	ago := func(d time.Duration) time.Time { return time.Now().Add(-d) }
	for want, s := range map[string]trivet.Step{
		"-":     {Name: "wipe", State: trivet.StepWaiting, Started: ago(time.Hour), Ended: ago(time.Minute)},
		"10m0s": {Name: "wipe", State: trivet.StepRunning, Timeout: hour, Started: ago(10 * time.Minute)},
		"20m0s": {Name: "wipe", State: trivet.StepRunning, Timeout: hour, Elapsed: hour / 3, Started: ago(time.Minute)},
		"2m0s": {Name: "wipe", State: trivet.StepDone, Elapsed: 2 * hour / 60, Started: ago(time.Hour),
			Ended: ago(time.Minute)},
		"3m0s": {Name: trivet.StepHello, State: trivet.StepDone, Started: ago(4 * time.Minute), Ended: ago(time.Minute)},
	} {
		if got := stepTime(s); got != want {
			t.Errorf("the time of %+v is %s, want %s", s, got, want)
		}
	}
}
