package installer

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/agent/action"
	"github.com/trivet-project/trivet/internal/agent/installer/journal"
)

// crash runs an agent until stop is closed and then ends it as a crash would: with its journal and state as they are.
func crash(t *testing.T, c Config, path string, after time.Duration) {
	t.Helper()
	j, err := journal.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	c.Journal = j
	ctx, cancel := context.WithTimeout(t.Context(), after)
	defer cancel()
	if ending, err := Run(ctx, c); err == nil {
		t.Fatalf("ended with %q before its crash", ending)
	}
}

func TestARestartedAgentContinuesWithoutAHead(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		b := act("b")
		b.Retries = 1
		h, d := newHead(act("a"), b, act("c"), reboot), &doer{}
		hang := true
		d.do = actionFuncs{
			"a": func(context.Context, *action.Attempt) error { h.change(func() { h.down = errDown }); return nil },
			"b": func(ctx context.Context, _ *action.Attempt) error {
				if hang {
					<-ctx.Done()
				}
				return ctx.Err()
			},
		}
		c := config(h, d)
		c.State = dir
		path := filepath.Join(dir, "journal")
		crash(t, c, path, time.Minute)
		h.wantReports(t)

		// The next process of the same boot has a used token, and no head for an hour.
		c.Token = "used"
		hang = false
		time.AfterFunc(time.Hour, func() { h.change(func() { h.down = nil }) })
		j, err := journal.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer j.Close()
		c.Journal = j
		if got := runAgent(t, c); got != action.EndReboot {
			t.Errorf("ended with %q", got)
		}
		h.wantReports(t, "1 a/1 running", "2 a/1 done", "3 b/1 running", "4 b/1 failed", "5 b/2 running", "6 b/2 done",
			"7 c/1 running", "8 c/1 done", "9 reboot/1 running", "10 reboot/1 done")
		if d.runs["a"] != 1 || d.runs["b"] != 2 || d.runs["c"] != 1 {
			t.Errorf("ran %v", d.runs)
		}
	})
}

func TestTheStateOfAnotherBootIsNotResumed(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		h, d := newHead(act("a"), reboot), &doer{}
		d.do = actionFuncs{"a": func(ctx context.Context, _ *action.Attempt) error {
			<-ctx.Done()
			return ctx.Err()
		}}
		c := config(h, d)
		c.State = dir
		path := filepath.Join(dir, "journal")
		crash(t, c, path, time.Minute)
		d.do = nil
		h.change(func() { h.epoch, h.acked, h.reports = 2, 0, nil })
		c.BootID = "next boot"
		j, err := journal.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer j.Close()
		c.Journal = j
		runAgent(t, c)
		h.wantReports(t, "1 a/1 running", "2 a/1 done", "3 reboot/1 running", "4 reboot/1 done")
	})
}

// The progress of a run by its grant and the journal of an earlier process.
func TestPast(t *testing.T) {
	a, b := act("a"), act("b")
	b.Retries = 1
	run := &trivet.Run{Spec: trivet.WorkflowSpec{Actions: []trivet.Action{a, b, reboot}}, Done: []string{"a"},
		Attempts: map[string]int{"b": 1}}
	of := func(reports ...trivet.Report) past {
		entries := []journal.Entry{{Epoch: 1}, {Epoch: 1,
			Report: &trivet.Report{Action: "old", State: trivet.StepDone}}, {Epoch: 2}}
		for _, r := range reports {
			entries = append(entries, journal.Entry{Epoch: 2, Report: &r})
		}
		return pastOf(run, entries, 2)
	}
	if p := of(); !p.done["a"] || p.done["old"] || p.attempts["b"] != 1 || p.interrupted != nil || p.over != nil {
		t.Errorf("nothing done yet: %+v", p)
	}
	if p := of(trivet.Report{Action: "b", Attempt: 2, State: trivet.StepRunning}); p.interrupted == nil ||
		p.attempts["b"] != 2 {
		t.Errorf("incomplete: %+v", p)
	}
	if p := of(trivet.Report{Action: "b", Attempt: 2, State: trivet.StepFailed}); p.over == nil ||
		p.over.ending != action.EndNone {
		t.Errorf("failed for good: %+v", p)
	}
	if p := of(trivet.Report{Action: "reboot", Attempt: 1, State: trivet.StepDone}); p.over == nil ||
		p.over.ending != action.EndReboot {
		t.Errorf("about to reboot: %+v", p)
	}
}

func TestLoadKeyIsTheSameForABoot(t *testing.T) {
	dir := t.TempDir()
	first, err := LoadKey(dir)
	if err != nil {
		t.Fatal(err)
	}
	second, err := LoadKey(dir)
	if err != nil || !first.Equal(second) {
		t.Errorf("another key, error %v", err)
	}
	if fi, err := os.Stat(filepath.Join(dir, keyFile)); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("key file %v, error %v", fi, err)
	}
}
