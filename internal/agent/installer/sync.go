package installer

import (
	"context"
	"slices"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/agent/action"
	"github.com/trivet-project/trivet/internal/wait"
)

// sync waits for a reason to sync, sends the reports, and handles the answer.
func (a *agent) sync(ctx context.Context) (action.Ending, error) {
	if err := a.awaitReason(ctx); err != nil {
		return action.EndNone, err
	}
	req := a.request()
	a.logsBefore(ctx, req.Reports)
	tryCtx, cancel := context.WithTimeout(ctx, syncTimeout+req.Wait.D())
	began := time.Now()
	grant, err := a.Client.Sync(tryCtx, req)
	cancel()
	switch {
	case err == nil:
		a.refused = 0
		return a.answered(ctx, req, grant, began)
	case isRefusal(err):
		return a.fenced(ctx, err)
	}
	delay := a.pause.next()
	a.Log.Warn("no head answers", "error", err, "retryIn", delay)
	return action.EndNone, wait.Sleep(ctx, delay)
}

// answered handles an answer. It pauses before the next sync if the answer made no progress: no report was
// acknowledged, or there is no run although the head was allowed to wait.
func (a *agent) answered(ctx context.Context, req trivet.Sync, g trivet.Grant, began time.Time) (action.Ending, error) {
	idle := a.work == nil || req.Paused
	if ending := a.handle(g); ending != action.EndNone {
		return ending, nil
	}
	left := a.Journal.Unacked()
	switch {
	case a.work != nil && len(req.Reports) > 0 && len(left) > 0 && left[0].Seq == req.Reports[0].Seq:
		delay := a.pause.next()
		a.Log.Warn("a head acknowledged no report", "report", left[0].Seq, "retryIn", delay)
		return action.EndNone, wait.Sleep(ctx, delay)
	case idle && (a.work == nil || a.work.gate.holds()) && time.Since(began) < idlePause:
		return action.EndNone, wait.Sleep(ctx, wait.Jitter(2*idlePause))
	}
	a.pause.reset()
	if n := len(req.Reports); a.work != nil && n > 0 && len(left) > 0 && left[0].Seq <= req.Reports[n-1].Seq {
		signal(a.work.reported) // the head took the first ones: send the others now
	}
	return action.EndNone, nil
}

// request returns the next request. Without a run its epoch is 0 or that of the finished run, and the head may wait,
// as it may while the run is paused.
func (a *agent) request() trivet.Sync {
	req := trivet.Sync{Machine: a.machine, Epoch: a.epoch, BootID: a.BootID}
	if a.work == nil {
		req.Wait = trivet.MaxWait
		return req
	}
	if a.work.gate.holds() {
		req.Paused, req.Wait = true, trivet.MaxWait
	}
	select { // this sync sends what was reported until now
	case <-a.work.reported:
	default:
	}
	req.Reports = a.Journal.Unacked()
	if len(req.Reports) > trivet.MaxReports {
		req.Reports = req.Reports[:trivet.MaxReports]
	}
	req.Progress = a.work.progress.Load()
	return req
}

// logsBefore sends the logs of actions before the reports that they have ended, so that readers of a report find the
// log.
func (a *agent) logsBefore(ctx context.Context, reports []trivet.Report) {
	if slices.ContainsFunc(reports, func(r trivet.Report) bool { return r.State != trivet.StepRunning }) {
		ctx, cancel := context.WithTimeout(ctx, logsBeforeTimeout)
		defer cancel()
		_ = a.logs.flush(ctx) // they are sent later
	}
}

// awaitReason returns after the interval, or a moment after a report so that others can share its sync, or at once
// when the run is over. Without a run, or while it is paused, the head waits instead.
func (a *agent) awaitReason(ctx context.Context) error {
	if a.work == nil || a.work.isOver() || a.work.gate.holds() {
		return ctx.Err()
	}
	heartbeat := time.NewTimer(a.interval)
	defer heartbeat.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-heartbeat.C:
		return nil
	case <-a.work.over:
		return nil
	case <-a.work.reported:
	}
	more := time.NewTimer(coalesce)
	defer more.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-a.work.over:
	case <-more.C:
	}
	return nil
}

// fenced stops the run: the heads have replaced this agent or its run. An agent without a run that is still refused
// reboots the machine for another token.
func (a *agent) fenced(ctx context.Context, cause error) (action.Ending, error) {
	a.Log.Warn("fenced: the run belongs to another agent", "epoch", a.epoch, "error", cause)
	if ending := a.drop(); ending != action.EndNone {
		return ending, nil
	}
	a.refused++
	if a.refused < refusedMax {
		return action.EndNone, wait.Sleep(ctx, a.pause.next())
	}
	return action.EndReboot, wait.Sleep(ctx, wait.Jitter(refusedPause))
}
