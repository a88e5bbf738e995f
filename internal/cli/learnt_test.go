package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
)

func seconds(n int) trivet.Duration { return trivet.Duration(n) * trivet.Duration(time.Second) }

// expected is a run that began 30 s ago, of whose steps the times are known.
func expected() *trivet.Workflow {
	return &trivet.Workflow{
		Meta: trivet.Meta{Project: "default", Name: "web1-1"},
		Spec: trivet.WorkflowSpec{Machine: "m1", Template: "t", Times: []trivet.StepTime{
			{Step: "dhcp", P50: seconds(90), P95: seconds(120)}, {Step: "write", P50: seconds(600), P95: seconds(600)}}},
		Status: trivet.WorkflowStatus{State: trivet.WorkflowBooting, Steps: []trivet.Step{
			{Name: "power-on", State: trivet.StepDone, Timeout: seconds(120)},
			{Name: "dhcp", State: trivet.StepRunning, Attempt: 1, MaxAttempts: 2, Timeout: seconds(480),
				Started: time.Now().Add(-30*time.Second + 500*time.Millisecond)},
			{Name: "write", Timeout: seconds(3600), MaxAttempts: 1}}},
	}
}

// A run shows how long its steps usually take and how long it still does: in tables, on a terminal and as lines.
func TestExpectedTimesAreShown(t *testing.T) {
	w := expected()
	var rows []string
	for _, row := range stepRows(w) {
		rows = append(rows, strings.Join(row[4:6], " "))
	}
	if got := strings.Join(rows, ", "); got != "USUAL DEADLINE, - 2m0s, 1m30s to 2m0s 8m0s, 10m0s 1h0m0s" {
		t.Errorf("the rows are %s", got)
	}
	if got := etaCell(w); got != "11m1s" {
		t.Errorf("the cell is %s", got)
	}
	const text = "It usually ends in 11m1s from now, and in 11m31s at most for 95 of 100 runs."
	if got := etaText(w); got != text {
		t.Errorf("%s", got)
	}
	p := provisionState{provision: &trivet.Provision{Meta: trivet.Meta{Name: "web1"}, Status: trivet.ProvisionStatus{
		State: trivet.ProvisionRunning, Machine: "m1", Attempts: 1}}, workflow: w}
	if got := headline(p); got != "running on m1, attempt 1, about 11m1s left" {
		t.Errorf("the headline is %s", got)
	}
	var out bytes.Buffer
	l := &lines{out: &out, shown: map[string]string{}}
	l.show(p)
	l.show(p)
	want := "m1: " + text + "\nm1: power-on: done in 0s\n" +
		"m1: dhcp: attempt 1/2, usually 1m30s to 2m0s, deadline 8m0s\n"
	if out.String() != want {
		t.Errorf("the lines are\n%s", out.String())
	}
	late := expected()
	late.Status.Steps[1].Started = time.Now().Add(-time.Hour)
	late.Status.Steps = late.Status.Steps[:2]
	if got := etaText(late); got != "" {
		t.Errorf("a run that takes longer than others: %s", got)
	}
	w.Status.State = trivet.WorkflowSucceeded
	if etaCell(w) != "" || etaText(w) != "" || etaOf(nil) != nil {
		t.Error("a run that has ended has an ETA")
	}
	w.Spec.Times = nil
	if got := strings.Join(stepRows(w)[0], " "); got != "STEP STATE ATTEMPT TIME DEADLINE MESSAGE" {
		t.Errorf("where nothing was learnt the titles are %s", got)
	}
}

func TestReputationText(t *testing.T) {
	now := time.Now()
	for want, r := range map[string]*trivet.Reputation{
		"good": nil,
		"1.5 own fault, 1 image": {Time: now, Failures: map[trivet.FailureType]float64{
			trivet.FaultImage: 1, trivet.FaultMachine: 1.5}},
		"0.5 own fault": {Time: now.Add(-14 * 24 * time.Hour),
			Failures: map[trivet.FailureType]float64{trivet.FaultMachine: 1}},
	} {
		if got := reputationText(r); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// Machines are sorted by the faults that are their own, the best first.
func TestSortByReputation(t *testing.T) {
	info, err := trivet.LookupKind("machines")
	if err != nil {
		t.Fatal(err)
	}
	by, err := sorter(info, "reputation")
	if err != nil {
		t.Fatal(err)
	}
	var all []found
	for name, failures := range map[string]map[trivet.FailureType]float64{
		"c": {trivet.FaultMachine: 2}, "a": {trivet.FaultImage: 9}, "b": {trivet.FaultMachine: 1},
	} {
		m := &trivet.Machine{Meta: trivet.Meta{Name: name}}
		m.Status.Reputation = &trivet.Reputation{Failures: failures, Time: time.Now()}
		all = append(all, found{record: m})
	}
	got := ""
	for _, f := range sorted(all, by) {
		got += f.record.Header().Name
	}
	if got != "abc" {
		t.Errorf("sorted: %s", got)
	}
}

func TestModelRows(t *testing.T) {
	all := []trivet.Model{{Runs: 40, Failures: map[trivet.FailureType]float64{"machine": 3.5, "image": 1}},
		{Name: "Dell", Runs: 12.25, Avoided: true, Steps: []trivet.StepTime{
			{Step: "dhcp", P50: seconds(60), P95: seconds(70), Late: seconds(90), Runs: 12}}}}
	var lines []string
	for _, row := range append(modelRows(all), modelStepRows(all)...) {
		lines = append(lines, strings.Join(row, "|"))
	}
	want := `MODEL|RUNS|MACHINE FAULTS|OTHER FAILURES|PLACEMENT
(all)|40|3.5|1|
Dell|12.2|0|0|avoided
MODEL|STEP|KNOWN|50 %|95 %|LATE AFTER
Dell|dhcp|12|1m0s|1m10s|1m30s`
	if got := strings.Join(lines, "\n"); got != want {
		t.Errorf("%s", got)
	}
}
