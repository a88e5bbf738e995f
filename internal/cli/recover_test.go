package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
)

// What a recovery has left is listed with the commands that decide about it, as they are to be run.
func TestWhatARecoveryLeft(t *testing.T) {
	recovered := &trivet.Recovered{From: "backup"}
	frozen := []frozenProvision{{Project: "default", Provision: "web1", Machine: "m1", Workflow: "web1-1", Step: "image"},
		{Project: "other", Provision: "web2"}}
	for name, c := range map[string]struct {
		left       afterRecovery
		want, none []string
	}{
		"frozen": {afterRecovery{Recovered: recovered, Frozen: frozen}, []string{
			"\n  trivet recover resolve web1 --continue\n  trivet recover resolve other/web2 --continue\n",
			"by --continue, --cancel or --installed", "--cancel leaves the machine as it is"}, []string{"unverified:", "nothing is left"}},
		"many": {afterRecovery{Recovered: recovered, Frozen: make([]frozenProvision, maxDecisions+3)},
			[]string{"\n  the same for 3 more\n"}, nil},
		"unverified": {afterRecovery{Recovered: recovered, Unverified: []string{"m1", "m2", "m3"}, kept: []string{"m1"}},
			[]string{"\nunverified: 2 machines: m2, m3\n", ": trivet accept m2\n",
				": trivet quarantine m2 --reason 'installed before the recovery'\n",
				": trivet recover resolve PROVISION --installed --machine m1\n",
				"\nunverified, and kept in quarantine: 1 machine: m1\n"}, []string{"decide about", "nothing is left"}},
		"kept": {afterRecovery{Recovered: recovered, Unverified: []string{"m1"}, kept: []string{"m1"}},
			[]string{"kept in quarantine: 1 machine: m1\nnothing is left to decide\n"}, []string{"trivet accept"}},
		"nothing": {afterRecovery{Recovered: recovered}, []string{"\nnothing is left to decide\n"}, []string{"trivet"}},
	} {
		var out bytes.Buffer
		a := newApp(Env{Out: &out, Err: &out})
		a.output = "table"
		if err := a.showLeft(c.left); err != nil {
			t.Fatal(err)
		}
		for _, text := range c.want {
			if !strings.Contains(out.String(), text) {
				t.Errorf("%s: %q is missing:\n%s", name, text, out.String())
			}
		}
		for _, text := range c.none {
			if strings.Contains(out.String(), text) {
				t.Errorf("%s: %q is there:\n%s", name, text, out.String())
			}
		}
	}
}

// A run that a recovery has frozen is shown as such, and where to decide.
func TestFrozenRunIsShown(t *testing.T) {
	w := expected()
	w.Status.State, w.Status.Frozen = trivet.WorkflowRunning, true
	var out bytes.Buffer
	if err := newApp(Env{Out: &out, Err: &out}).printWorkflow(w); err != nil {
		t.Fatal(err)
	}
	if text := out.String(); !strings.Contains(text, "running, and frozen: ") ||
		!strings.Contains(text, "decides: trivet recover list\n") || strings.Contains(text, "left") {
		t.Errorf("trivet why prints:\n%s", text)
	}
	if row := kindColumns["Workflow"].row(w); row[0] != "running, frozen" || row[4] != "" {
		t.Errorf("the table has %q", row)
	}
}
