package installer

import (
	"context"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trivet-project/trivet/internal/agent/action"
	"github.com/trivet-project/trivet/internal/agent/installer/journal"
)

// pausing returns a head that pauses its run of three actions while the first one is in progress.
func pausing() (*head, *doer) {
	h, d := newHead(act("a"), act("b"), reboot), &doer{}
	d.do = actionFuncs{"a": func(context.Context, *action.Attempt) error {
		h.change(func() { h.paused = true })
		time.Sleep(time.Minute) // the agent learns that meanwhile
		return nil
	}}
	return h, d
}

// An agent whose run is paused ends the action that it is at, and begins no other one until it is resumed. Meanwhile it
// syncs as an idle one does: the head delays its responses.
func TestPausedAgentBeginsNoAction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := pausing()
		ended := make(chan action.Ending)
		go func() { ended <- runAgent(t, config(h, d)) }()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		h.wantReports(t, "1 a/1 running", "2 a/1 done")
		h.mu.Lock()
		last, before := h.syncs[len(h.syncs)-1], len(h.syncs)
		h.mu.Unlock()
		if !last.Paused || last.Wait == 0 || len(last.Reports) != 0 {
			t.Errorf("its syncs are like %+v", last)
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		h.mu.Lock()
		if n := len(h.syncs) - before; n < 10 || n > 30 {
			t.Errorf("in ten minutes it has synced %d times", n)
		}
		h.mu.Unlock()
		resumed := time.Now()
		h.change(func() { h.paused = false })
		if got := <-ended; got != action.EndReboot {
			t.Errorf("ended with %q", got)
		}
		if waited := d.last["b"].Sub(resumed); waited > time.Second {
			t.Errorf("the next action began %s after the run was resumed", waited)
		}
		h.wantReports(t, "1 a/1 running", "2 a/1 done", "3 b/1 running", "4 b/1 done", "5 reboot/1 running",
			"6 reboot/1 done")
	})
}

// Nor does an attempt after one that failed.
func TestPausedAgentBeginsNoAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := act("a")
		a.Retries = 1
		h, d := newHead(a, reboot), &doer{}
		d.do = actionFuncs{"a": func(_ context.Context, at *action.Attempt) error {
			if at.Number > 1 {
				return nil
			}
			h.change(func() { h.paused = true })
			time.Sleep(time.Minute)
			return errBroken
		}}
		ended := make(chan action.Ending)
		go func() { ended <- runAgent(t, config(h, d)) }()
		time.Sleep(time.Hour)
		synctest.Wait()
		h.wantReports(t, "1 a/1 running", "2 a/1 failed")
		h.change(func() { h.paused = false })
		<-ended
		h.wantReports(t, "1 a/1 running", "2 a/1 failed", "3 a/2 running", "4 a/2 done", "5 reboot/1 running",
			"6 reboot/1 done")
	})
}

// An agent that is restarted while its run is paused begins nothing, though no head answers.
func TestRestartedAgentStaysPaused(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		h, d := pausing()
		c := config(h, d)
		c.State = dir
		path := filepath.Join(dir, "journal")
		crash(t, c, path, 10*time.Minute)
		h.change(func() { h.down = errDown })
		crash(t, c, path, time.Hour)
		if d.runs["b"] != 0 {
			t.Fatal("the restarted agent went on")
		}
		h.change(func() { h.down, h.paused = nil, false })
		j, err := journal.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer j.Close()
		c.Journal = j
		if got := runAgent(t, c); got != action.EndReboot || d.runs["a"] != 1 || d.runs["b"] != 1 {
			t.Errorf("ended with %q, after %v", got, d.runs)
		}
	})
}

// A grant may say that the run is paused: then nothing begins.
func TestGrantOfPausedRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHead(act("a"), reboot), &doer{}
		h.paused = true
		ended := make(chan action.Ending)
		go func() { ended <- runAgent(t, config(h, d)) }()
		time.Sleep(time.Hour)
		synctest.Wait()
		h.wantReports(t)
		h.change(func() { h.paused = false })
		<-ended
		h.wantReports(t, "1 a/1 running", "2 a/1 done", "3 reboot/1 running", "4 reboot/1 done")
	})
}
