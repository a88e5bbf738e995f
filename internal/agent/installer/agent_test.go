package installer

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/agent/action"
)

func TestARunEndsInItsReboot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHead(act("a"), act("b"), act("c"), reboot), &doer{}
		h.run.Done = []string{"a"}
		if got := runAgent(t, config(h, d)); got != action.EndReboot {
			t.Errorf("ended with %q", got)
		}
		h.wantReports(t, "1 b/1 running", "2 b/1 done", "3 c/1 running", "4 c/1 done", "5 reboot/1 running",
			"6 reboot/1 done")
		if d.runs["a"] != 0 || d.runs["b"] != 1 {
			t.Errorf("ran %v", d.runs)
		}
		if len(h.syncs) != 1 {
			t.Errorf("%d syncs for actions without duration, want 1", len(h.syncs))
		}
	})
}

func TestNothingIsLostBeforeItIsAcknowledged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHead(act("a"), act("b"), reboot), &doer{}
		d.do = actionFuncs{
			"a": func(context.Context, *action.Attempt) error { h.change(func() { h.down = errDown }); return nil },
			"b": func(ctx context.Context, at *action.Attempt) error {
				fmt.Fprintln(at.Log, "written during an outage")
				return nil
			},
		}
		var ending action.Ending
		ended := make(chan struct{})
		go func() { ending = runAgent(t, config(h, d)); close(ended) }()
		time.Sleep(time.Hour)
		synctest.Wait()
		select {
		case <-ended:
			t.Fatal("the machine rebooted with unacknowledged reports")
		default:
		}
		if d.runs["b"] != 1 {
			t.Fatal("the run did not continue while no head answered")
		}
		h.wantReports(t)
		h.change(func() { h.down = nil })
		<-ended
		h.wantReports(t, "1 a/1 running", "2 a/1 done", "3 b/1 running", "4 b/1 done", "5 reboot/1 running",
			"6 reboot/1 done")
		if ending != action.EndReboot || h.logs["w/b/1"] != "written during an outage\n" {
			t.Errorf("ended with %q, log %q", ending, h.logs["w/b/1"])
		}
	})
}

// A reader who sees that an action has ended finds its log.
func TestLogsArriveBeforeTheReportOfTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHead(act("a")), &doer{}
		d.do = actionFuncs{
			"a": func(_ context.Context, at *action.Attempt) error {
				fmt.Fprint(at.Log, "first ")
				time.Sleep(time.Second) // they are sent
				fmt.Fprint(at.Log, "last")
				return nil
			},
		}
		var atEnd string
		h.onReport = func(r trivet.Report) {
			if r.State == trivet.StepDone {
				atEnd = h.logs["w/a/1"]
			}
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { _, _ = Run(ctx, config(h, d)); close(ended) }()
		time.Sleep(time.Minute)
		stop()
		<-ended
		h.wantReports(t, "1 a/1 running", "2 a/1 done")
		if atEnd != "first last" {
			t.Errorf("when the end was reported the log was %q", atEnd)
		}
	})
}

func TestAttemptsBackOffAndEnd(t *testing.T) {
	fail := func(context.Context, *action.Attempt) error { return errBroken }
	for name, c := range map[string]struct {
		retries, used int
		do            func(context.Context, *action.Attempt) error
		want          []string
		fault         trivet.FailureType
		waits         time.Duration
	}{
		"all used": {2, 0, fail, []string{"1 a/1 running", "2 a/1 failed", "3 a/2 running", "4 a/2 failed",
			"5 a/3 running", "6 a/3 failed"},
			trivet.FaultMachine, 3 * time.Minute},
		"some used by others": {2, 1, fail, []string{"1 a/2 running", "2 a/2 failed", "3 a/3 running", "4 a/3 failed"},
			trivet.FaultMachine, 2 * time.Minute},
		"none left": {2, 3, fail, nil, "", 0},
		"final": {2, 0, func(context.Context, *action.Attempt) error {
			return &action.Failure{Fault: trivet.FaultImage, Final: true, Err: errBroken}
		}, []string{"1 a/1 running", "2 a/1 failed"}, trivet.FaultImage, 0},
		"panic": {0, 0, func(context.Context, *action.Attempt) error { panic("oops") },
			[]string{"1 a/1 running", "2 a/1 failed"}, trivet.FaultControlPlane, 0},
		"hang": {0, 0, func(ctx context.Context, _ *action.Attempt) error { <-ctx.Done(); return ctx.Err() },
			[]string{"1 a/1 running", "2 a/1 failed"}, trivet.FaultMachine, 0},
		"hang on the network": {0, 0, func(ctx context.Context, _ *action.Attempt) error {
			<-ctx.Done()
			return action.Fault(trivet.FaultNetwork, ctx.Err())
		}, []string{"1 a/1 running", "2 a/1 failed"}, trivet.FaultNetwork, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := act("a")
				a.Retries, a.Backoff, a.Timeout = c.retries, trivet.Duration(time.Minute),
					trivet.Duration(5*time.Minute)
				h, d := newHead(a, act("never")), &doer{do: actionFuncs{"a": c.do}}
				if c.used > 0 {
					h.run.Attempts = map[string]int{"a": c.used}
				}
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan struct{})
				began := time.Now()
				go func() { defer close(ended); Run(ctx, config(h, d)) }()
				time.Sleep(time.Hour)
				synctest.Wait()
				h.wantReports(t, c.want...)
				if d.runs["never"] != 0 {
					t.Error("the next action ran")
				}
				if n := len(h.last); n > 0 {
					if r := h.last[n-1]; r.Fault != c.fault || r.Cause == "" {
						t.Errorf("last report %+v", r)
					}
				}
				if got := d.last["a"].Sub(began); got != c.waits && c.want != nil {
					t.Errorf("the last attempt began after %s, want %s", got, c.waits)
				}
				cancel()
				<-ended
			})
		})
	}
}

// A head that stores only the first reports of a request gets the others in the next, which does not wait for the
// interval.
func TestReportsThatAHeadDidNotTakeAreSentAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHead(act("a"), act("b"), act("c")), &doer{}
		h.most = 2
		d.do = actionFuncs{"c": func(ctx context.Context, _ *action.Attempt) error {
			<-ctx.Done()
			return ctx.Err()
		}}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); Run(ctx, config(h, d)) }()
		time.Sleep(h.interval.D() / 2)
		h.wantReports(t, "1 a/1 running", "2 a/1 done", "3 b/1 running", "4 b/1 done", "5 c/1 running")
		cancel()
		<-ended
	})
}

func TestAFencedAgentStopsAtOnce(t *testing.T) {
	for name, fence := range map[string]func(h *head){
		"order":        func(h *head) { h.order = trivet.OrderStop; h.epoch++; h.run = nil },
		"fenced":       func(h *head) { h.down = fmt.Errorf("sync: %w", trivet.ErrFenced) },
		"unknown":      func(h *head) { h.down = fmt.Errorf("sync: %w", trivet.ErrUnauthenticated) },
		"newer epoch":  func(h *head) { h.epoch++; h.run = nil },
		"another work": func(h *head) { h.epoch++; h.run = &trivet.Run{Workflow: "x"} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, d := newHead(act("a"), act("b")), &doer{}
				var died time.Time
				d.do = actionFuncs{"a": func(ctx context.Context, _ *action.Attempt) error {
					<-ctx.Done()
					died = time.Now()
					return ctx.Err()
				}}
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan struct{})
				go func() { defer close(ended); Run(ctx, config(h, d)) }()
				time.Sleep(time.Minute)
				h.change(func() { fence(h) })
				fenced := time.Now()
				time.Sleep(5 * time.Minute)
				cancel()
				<-ended
				if died.IsZero() || died.Sub(fenced) > h.interval.D() {
					t.Errorf("the action ended %s after the fence", died.Sub(fenced))
				}
				h.wantReports(t, "1 a/1 running")
				if d.runs["b"] != 0 {
					t.Error("the next action ran")
				}
			})
		})
	}
}

func TestAnActionThatDoesNotEndCausesAReboot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := act("a")
		a.Timeout, a.Retries = trivet.Duration(time.Minute), 5
		forever := make(chan struct{})
		defer close(forever)
		h, d := newHead(a), &doer{do: actionFuncs{
			"a": func(context.Context, *action.Attempt) error { <-forever; return nil },
		}}
		if got := runAgent(t, config(h, d)); got != action.EndReboot {
			t.Errorf("ended with %q", got)
		}
		h.wantReports(t, "1 a/1 running", "2 a/1 failed")
		if r := h.last[1]; !r.Final || r.Fault != trivet.FaultMachine {
			t.Errorf("reported %+v", r)
		}
	})
}

func TestARefusedTokenRebootsTheMachine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := config(newHead(act("a")), &doer{})
		c.Token = "old"
		began := time.Now()
		if got := runAgent(t, c); got != action.EndReboot {
			t.Errorf("ended with %q", got)
		}
		if time.Since(began) < refusedPause/2 {
			t.Error("at once: a storm of reboots")
		}
	})
}

func TestHelloIsRetriedUntilAHeadAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHead(act("a"), reboot), &doer{}
		h.down = errDown
		time.AfterFunc(3*time.Hour, func() { h.change(func() { h.down = nil }) })
		if got := runAgent(t, config(h, d)); got != action.EndReboot {
			t.Errorf("ended with %q", got)
		}
	})
}

func TestAnIdleAgentWaitsForWorkAndOrders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHead(), &doer{}
		ended := make(chan action.Ending)
		go func() { ended <- runAgent(t, config(h, d)) }()
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := len(h.syncs); n < 100 || n > 130 {
			t.Errorf("%d syncs in an hour of waiting, want about %d", n, time.Hour/trivet.MaxWait.D())
		}
		h.change(func() {
			h.epoch, h.run = 2, &trivet.Run{Workflow: "w",
				Spec: trivet.WorkflowSpec{Actions: []trivet.Action{act("a")}}}
		})
		synctest.Wait()
		time.Sleep(time.Second)
		synctest.Wait()
		h.wantReports(t, "1 a/1 running", "2 a/1 done")
		h.change(func() { h.order = trivet.OrderBoot })
		if got := <-ended; got != action.EndBoot {
			t.Errorf("ended with %q", got)
		}
	})
}

func TestSyncsAndProgressWhileAnActionRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHead(act("a"), reboot), &doer{}
		d.do = actionFuncs{"a": func(_ context.Context, at *action.Attempt) error {
			if !slices.Equal(at.Blobs(), []string{"http://head/blobs"}) {
				return fmt.Errorf("blobs at %v", at.Blobs())
			}
			for i := range int64(10) {
				at.Progress(i*1000, 10000, "bytes")
				time.Sleep(10 * time.Second)
			}
			at.Note(strings.Repeat("n", 1000))
			return nil
		}}
		runAgent(t, config(h, d))
		var progress []int64
		for _, s := range h.syncs {
			if s.Progress != nil {
				progress = append(progress, s.Progress.Done)
			}
		}
		if len(progress) < 9 || !slices.IsSorted(progress) {
			t.Errorf("progress %v", progress)
		}
		if r := h.last[1]; len(r.Note) > maxNote+3 || r.Elapsed.D() != 100*time.Second {
			t.Errorf("reported %+v", r)
		}
	})
}

func TestTheEndOfTheContextKillsTheAction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHead(act("a")), &doer{}
		dead := false
		d.do = actionFuncs{
			"a": func(ctx context.Context, _ *action.Attempt) error { <-ctx.Done(); dead = true; return ctx.Err() },
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		c := config(h, d)
		c.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
		if _, err := Run(ctx, c); err == nil || !dead {
			t.Errorf("error %v, action ended: %v", err, dead)
		}
	})
}

func TestClockCountsFromTheHeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Clock
		if !c.Now().Equal(time.Now()) {
			t.Error("a clock that has learned nothing is not the machine's")
		}
		head := time.Date(2040, 1, 1, 0, 0, 0, 0, time.UTC)
		c.Learn(head)
		time.Sleep(time.Hour)
		if got := c.Now(); !got.Equal(head.Add(time.Hour)) {
			t.Errorf("now %s", got)
		}
	})
}
