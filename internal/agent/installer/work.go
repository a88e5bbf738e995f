package installer

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/agent/action"
	"github.com/trivet-project/trivet/internal/wait"
)

// work is a granted run and the goroutine that performs it.
type work struct {
	agent  *agent
	run    *trivet.Run
	epoch  int64 // under which the run was granted
	past   past
	ctx    context.Context
	cancel context.CancelFunc

	reported chan struct{} // capacity 1: there are reports to send
	over     chan struct{} // closed at the end; outcome is valid then
	outcome  outcome
	gate     gate
	progress atomic.Pointer[trivet.Progress]
}

// outcome is how the work ended.
type outcome struct {
	ending action.Ending
	stuck  bool // an action did not end
}

// past is the progress of a run before this process.
type past struct {
	done     map[string]bool
	attempts map[string]int // used
	// interrupted is an attempt that the last process did not end. over is set if nothing is left to do.
	interrupted *trivet.Report
	over        *outcome
}

func progressOf(run *trivet.Run) past {
	p := past{done: map[string]bool{}, attempts: map[string]int{}}
	for _, name := range run.Done {
		p.done[name] = true
	}
	for name, n := range run.Attempts {
		p.attempts[name] = n
	}
	return p
}

func (a *agent) newWork(run *trivet.Run, p past) *work {
	w := &work{agent: a, run: run, epoch: a.epoch, past: p, reported: make(chan struct{}, 1), over: make(chan struct{})}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	return w
}

func (w *work) start() {
	go func() {
		defer close(w.over)
		w.outcome = w.do()
	}()
}

func (w *work) isOver() bool {
	select {
	case <-w.over:
		return true
	default:
		return false
	}
}

// do runs the actions in their order. It stops without further reports when the work is cancelled.
func (w *work) do() outcome {
	if t := w.past.interrupted; t != nil {
		t.State, t.Cause, t.Fault = trivet.StepFailed, "the agent was restarted during the attempt",
			trivet.FaultControlPlane
		w.report(*t)
	}
	if w.past.over != nil {
		return *w.past.over
	}
	for i := range w.run.Spec.Actions {
		act := &w.run.Spec.Actions[i]
		if w.past.done[act.Name] {
			continue
		}
		if stuck, err := w.action(act); err != nil || stuck {
			return outcome{stuck: stuck}
		}
		if ending := action.EndingOf(act.Use); ending != action.EndNone {
			return outcome{ending: ending}
		}
	}
	return outcome{}
}

// action runs one action with its retries. An error ends the run.
func (w *work) action(act *trivet.Action) (stuck bool, err error) {
	for try := w.past.attempts[act.Name] + 1; ; try++ {
		if try > act.Retries+1 {
			return false, errors.New("no attempt is left")
		}
		if err := w.awaitResume(); err != nil {
			return false, err
		}
		stuck, err := w.attempt(act, try)
		if err == nil || stuck || w.ctx.Err() != nil {
			return stuck, err
		}
		var f *action.Failure
		if errors.As(err, &f) && f.Final || try > act.Retries {
			return false, err
		}
		if err := wait.Sleep(w.ctx, act.BackoffAfter(try).D()); err != nil {
			return false, err
		}
	}
}

// attempt runs the action once, between two reports. The first is on stable storage before the action changes
// anything.
func (w *work) attempt(act *trivet.Action, try int) (stuck bool, err error) {
	log := w.agent.logs.open(w.run.Workflow, trivet.LogKey{Action: act.Name, Epoch: w.epoch, Attempt: try})
	defer log.Close()
	begin := trivet.Report{Action: act.Name, Attempt: try, State: trivet.StepRunning}
	at := &attempt{work: w, act: act, log: log, number: try, report: begin}
	err = w.report(begin)
	began := time.Now()
	if err == nil {
		stuck, err = at.do()
	}
	if w.ctx.Err() != nil {
		return stuck, context.Cause(w.ctx)
	}
	if errJournal := w.report(at.end(err, time.Since(began))); errJournal != nil {
		w.agent.Log.Error("cannot write a report to the journal; it is in memory only", "action", act.Name,
			"error", errJournal)
	}
	w.progress.Store(nil)
	return stuck, err
}

// report writes a report to the journal and wakes the goroutine that syncs. It does not wait for a head.
func (w *work) report(r trivet.Report) error {
	err := w.agent.Journal.Report(r)
	signal(w.reported)
	return action.Fault(trivet.FaultMachine, err)
}
