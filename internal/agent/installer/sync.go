package installer

import (
	"context"
	"slices"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/agent/action"
)

// sync waits until there is something to say, says it, and obeys the answer.
func (a *agent) sync(ctx context.Context) (action.Ending, error) {
	if err := a.awaitReason(ctx); err != nil {
		return action.EndNone, err
	}
	req := a.request()
	a.wordsFirst(ctx, req.Reports)
	tryCtx, cancel := context.WithTimeout(ctx, syncTimeout+req.Wait.D())
	began := time.Now()
	grant, err := a.Door.Sync(tryCtx, req)
	cancel()
	switch {
	case err == nil:
		a.refused = 0
		return a.answered(ctx, req, grant, began)
	case isRefusal(err):
		return a.fenced(ctx, err)
	}
	wait := a.pause.next()
	a.Log.Warn("no head answers; going on", "error", err, "again in", wait)
	return action.EndNone, sleep(ctx, wait)
}

// answered obeys an answer. One that brings nothing, where something was due, is not asked for again at once: reports that
// were not taken, or nothing to do although the head was allowed to wait.
func (a *agent) answered(ctx context.Context, req trivet.Sync, g trivet.Grant, began time.Time) (action.Ending, error) {
	idle := a.work == nil
	if ending := a.obey(g); ending != action.EndNone {
		return ending, nil
	}
	left := a.Journal.Unacked()
	switch {
	case a.work != nil && len(req.Reports) > 0 && len(left) > 0 && left[0].Seq == req.Reports[0].Seq:
		wait := a.pause.next()
		a.Log.Warn("a head answered but took no report", "report", left[0].Seq, "again in", wait)
		return action.EndNone, sleep(ctx, wait)
	case idle && a.work == nil && time.Since(began) < idlePause:
		return action.EndNone, sleep(ctx, jitter(2*idlePause))
	}
	a.pause.reset()
	return action.EndNone, nil
}

// request is all there is to say. An agent without a run says epoch 0, or that of the run it has finished, and waits.
func (a *agent) request() trivet.Sync {
	req := trivet.Sync{Machine: a.machine, Epoch: a.epoch, BootID: a.BootID}
	if a.work == nil {
		req.Wait = trivet.MaxWait
		return req
	}
	select { // what was reported until here is sent by this very sync
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

// wordsFirst lets what actions wrote reach a head before the report of their end: who sees the end looks for the words.
func (a *agent) wordsFirst(ctx context.Context, reports []trivet.Report) {
	if slices.ContainsFunc(reports, func(r trivet.Report) bool { return r.State != trivet.StepRunning }) {
		ctx, cancel := context.WithTimeout(ctx, logsFirst)
		defer cancel()
		_ = a.logs.flush(ctx) // they come later, if they come
	}
}

// awaitReason returns at the next beat, or a moment after a report so that others can share its sync, or at once when the
// work is over. Without work the head does the waiting.
func (a *agent) awaitReason(ctx context.Context) error {
	if a.work == nil || a.work.isOver() {
		return ctx.Err()
	}
	beat := time.NewTimer(a.beat)
	defer beat.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-beat.C:
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

// fenced: the heads have replaced this agent, or its run. It stops at once. One that has nothing left to lose by it and is
// still refused boots again for another token.
func (a *agent) fenced(ctx context.Context, cause error) (action.Ending, error) {
	a.Log.Warn("refused: the run is no longer this agent's", "epoch", a.epoch, "error", cause)
	if ending := a.drop(); ending != action.EndNone {
		return ending, nil
	}
	a.refused++
	if a.refused < refusedMax {
		return action.EndNone, sleep(ctx, a.pause.next())
	}
	return action.EndReboot, sleep(ctx, jitter(refusedPause))
}
