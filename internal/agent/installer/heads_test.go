package installer

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/agent/action"
)

// A head that has not read another head's grant cannot end the run, whatever it answers.
func TestAStaleHeadDoesNotEndARun(t *testing.T) {
	for name, stale := range map[string]trivet.Grant{
		"no run": {Machine: "m", Epoch: 1},
		"an older run": {Machine: "m", Epoch: 1, Run: &trivet.Run{Workflow: "old",
			Spec: trivet.WorkflowSpec{Actions: []trivet.Action{act("old")}}}},
		"an order": {Machine: "m", Epoch: 1, Order: trivet.OrderStop},
		"to boot":  {Machine: "m", Epoch: 1, Order: trivet.OrderBoot},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, d := newHead(act("a"), reboot), &doer{}
				h.epoch = 2
				d.do = actionFuncs{"a": func(ctx context.Context, _ *action.Attempt) error {
					time.Sleep(time.Minute)
					h.change(func() { h.stale = &stale })
					time.Sleep(2 * time.Minute)
					h.change(func() { h.stale = nil })
					return ctx.Err()
				}}
				if got := runAgent(t, config(h, d)); got != action.EndReboot {
					t.Errorf("ended with %q", got)
				}
				h.wantReports(t, "1 a/1 running", "2 a/1 done", "3 reboot/1 running", "4 reboot/1 done")
				if d.runs["old"] != 0 || d.runs["a"] != 1 {
					t.Errorf("ran %v", d.runs)
				}
			})
		})
	}
}

// A dropped run is not started again when a stale head grants it; a run of a newer epoch is.
func TestADroppedRunIsNotGrantedByAHeadThatIsBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHead(act("a"), reboot), &doer{}
		first := h.run
		d.do = actionFuncs{"a": func(ctx context.Context, at *action.Attempt) error {
			if at.Run == first {
				<-ctx.Done()
				h.change(func() { h.down, h.stale = nil, &trivet.Grant{Machine: "m", Epoch: 1, Run: first} })
			}
			return ctx.Err()
		}}
		ended := make(chan action.Ending)
		go func() { ended <- runAgent(t, config(h, d)) }()
		time.Sleep(time.Minute)
		h.change(func() { h.down = fmt.Errorf("sync: %w", trivet.ErrFenced) })
		time.Sleep(20 * time.Second) // it is fenced at its next sync, and then requests work
		synctest.Wait()
		if d.runs["a"] != 1 {
			t.Errorf("ran %v", d.runs)
		}
		h.change(func() { h.stale, h.epoch, h.run = nil, 2, &trivet.Run{Workflow: "w", Spec: first.Spec} })
		if got := <-ended; got != action.EndReboot || d.runs["a"] != 2 {
			t.Errorf("ended with %q, ran %v", got, d.runs)
		}
	})
}

// Where all heads have another history, from a backup, the machine boots into that.
func TestAnAgentOfAnotherHistoryReboots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHead(act("a")), &doer{}
		h.epoch = 5
		d.do = actionFuncs{"a": func(ctx context.Context, _ *action.Attempt) error {
			h.change(func() { h.down = fmt.Errorf("sync: %w", trivet.ErrFenced) })
			<-ctx.Done()
			h.change(func() { h.down, h.stale = nil, &trivet.Grant{Machine: "m", Epoch: 3, Run: h.run} })
			return ctx.Err()
		}}
		if got := runAgent(t, config(h, d)); got != action.EndReboot || d.runs["a"] != 1 {
			t.Errorf("ended with %q, ran %v", got, d.runs)
		}
	})
}

// The next process of a boot uses the heads that the last one received. An answer without heads changes nothing.
func TestTheHeadsAreSaved(t *testing.T) {
	dir := t.TempDir()
	if got := LoadHeads(dir); got.URLs != nil {
		t.Errorf("without a saved state: %v", got)
	}
	synctest.Test(t, func(t *testing.T) {
		h, d := newHead(act("a"), act("b"), reboot), &doer{}
		heads := []string{"https://10.0.0.1:7480", "https://10.0.0.2:7480"}
		h.heads, h.trust = heads[:1], "sha256:1"
		answer := func(urls []string) func(context.Context, *action.Attempt) error {
			return func(context.Context, *action.Attempt) error {
				h.change(func() { h.heads = urls })
				time.Sleep(time.Minute)
				if got := LoadHeads(dir); !slices.Equal(got.URLs, heads) || got.Trust != h.trust {
					t.Errorf("received %v, saved %v", urls, got)
				}
				return nil
			}
		}
		d.do = actionFuncs{"a": answer(heads), "b": answer(nil)}
		c := config(h, d)
		c.State = dir
		runAgent(t, c)
	})
}
