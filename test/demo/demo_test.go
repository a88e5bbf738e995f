// Package demo_test runs `trivet demo` as a new user does, and recomputes its summary from its history.
package demo_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/trivet-project/trivet/internal/lab"
	"github.com/trivet-project/trivet/internal/testhead"
)

// Heads die by kill -9 while machines install and programs write. Nothing fails, nothing is lost, nothing runs twice.
func TestHeadsAreKilled(t *testing.T) {
	t.Parallel()
	history := filepath.Join(t.TempDir(), "history.jsonl")
	r, err := testhead.CLI(t.Context(), testhead.Command("", testhead.Program(t), "demo", "--heads", "3",
		"--machines", "24",
		"--kill", "random", "--json", "--timeout", "5m", "--history", history), "")
	if err != nil {
		t.Fatal(err)
	}
	out := r.Stdout
	var s lab.Summary
	if err := json.Unmarshal([]byte(out), &s); err != nil || s.Faults == nil {
		t.Fatalf("the output is %s (%v)", out, err)
	}
	t.Logf("%s", out)
	if s.Provisioned != 24 || s.Failed+s.Repeated+s.WorkflowsFailed+s.AcknowledgedWritesLost != 0 {
		t.Errorf("the summary shows failures: %s", out)
	}
	if s.HeadsKilled < 10 || s.LeadersKilled < 3 {
		t.Errorf("%d kills, %d of leaders; want 10 and 3", s.HeadsKilled, s.LeadersKilled)
	}
	check(t, history, &s)
}

// Much is wrong with a site, and heads die meanwhile. What the records show is what is wrong, in time; no sound machine
// is in quarantine at the end, and every provision that has a sound machine left succeeds.
func TestSoakFaults(t *testing.T) {
	if os.Getenv("TRIVET_SOAK") == "" {
		t.Skip("only in make soak")
	}
	t.Parallel()
	history := filepath.Join(t.TempDir(), "history.jsonl")
	r, err := testhead.CLI(t.Context(), testhead.Command("", testhead.Program(t), "demo", "--scenario", "faults", "--heads",
		"3", "--machines", "200", "--kill", "random", "--json", "--timeout", "20m", "--history", history), "")
	if err != nil {
		t.Fatal(err)
	}
	var s lab.Summary
	if err := json.Unmarshal([]byte(r.Stdout), &s); err != nil || s.Result == nil || s.Faults == nil {
		t.Fatalf("the output is %s (%v)", r.Stdout, err)
	}
	t.Logf("%s", r.Stdout)
	for _, v := range s.Violations {
		t.Error(v)
	}
	if s.Switched == 0 || s.Quarantined == 0 || s.HeadsKilled == 0 || s.AcknowledgedWritesLost > 0 {
		t.Errorf("%+v, %+v", s.Result, s.Faults)
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(history), "history.truth.json")); err != nil {
		t.Error(err)
	}
}

// Heads are lost for good in six ways, and recovered by the commands of the program: nothing is lost that the plans
// did not give up, and all is well again. Likewise when keys and programs are replaced, of which test/heads shows more.
func TestRecovery(t *testing.T) {
	t.Parallel()
	want := lab.RecoveryCases()
	if os.Getenv("TRIVET_SOAK") == "" {
		want = slices.DeleteFunc(want, func(name string) bool { return name == "rotated" || name == "upgraded" })
	}
	r, err := testhead.CLI(t.Context(), testhead.Command("", testhead.Program(t), "demo", "--scenario", "recovery",
		"--case", strings.Join(want, ","), "--machines", "4", "--json", "--timeout", "10m"), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s", r.Stdout)
	var all []lab.RecoveryCase
	if err := json.Unmarshal([]byte(r.Stdout), &all); err != nil {
		t.Fatalf("the output is %s (%v)", r.Stdout, err)
	}
	var names []string
	for _, c := range all {
		names = append(names, c.Case)
		if c.Failed() || c.RecordsWritten == 0 || c.Seconds <= 0 {
			t.Errorf("%+v", c)
		}
		switch c.Case {
		case "head-replaced", "cold-start", "rotated", "upgraded":
			if c.RecordsLost > 0 {
				t.Errorf("%s loses %d writes", c.Case, c.RecordsLost)
			}
		case "only-a-backup":
			if c.RecordsLost == 0 {
				t.Error("nothing was written after the backup, so that its case shows nothing")
			}
		}
	}
	if !slices.Equal(names, want) {
		t.Errorf("the cases are %v, want %v", names, want)
	}
}

// check recomputes the summary.
func check(t *testing.T, history string, s *lab.Summary) {
	t.Helper()
	text, err := os.ReadFile(history)
	if err != nil {
		t.Fatal(err)
	}
	up := map[string]bool{}
	kills, leaders := 0, 0
	for line := range strings.Lines(string(text)) {
		var e struct {
			What, Subject, Text string
			Leader              bool
			Acting              int
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		switch {
		case e.What == "kill":
			kills++
			if e.Leader {
				leaders++
			}
			if e.Acting == 0 {
				t.Errorf("no action ran at this kill: %s", line)
			}
		case e.What == "event" && strings.HasPrefix(e.Text, "AgentLost"):
			t.Errorf("no machine was reset, but an agent was lost: %s", line)
		case e.What == "write" && e.Text == "succeeded":
			up[e.Subject] = true
		}
	}
	if len(up) != s.Provisioned || kills != s.HeadsKilled || leaders != s.LeadersKilled {
		t.Errorf("by the history %d came up, %d heads were killed, %d of them leaders", len(up), kills, leaders)
	}
}
