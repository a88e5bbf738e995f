package installer

import (
	"slices"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/agent/action"
)

// Limits of the interval that a head may request.
const (
	intervalMin = 500 * time.Millisecond
	intervalMax = time.Minute
)

// handle applies a head's answer. An answer of an old epoch is from a head that is behind: it may have missed a newer
// run or the end of this one, so its orders and its run are ignored.
func (a *agent) handle(g trivet.Grant) action.Ending {
	a.learn(g)
	a.contacted.Do(func() { close(a.logs.known) })
	if g.Epoch < max(a.epoch, a.dropped) || g.Epoch == a.dropped && g.Run != nil {
		return a.ignore(g)
	}
	a.behind = 0
	if err := a.Journal.Ack(g.Epoch, g.Acked); err != nil {
		a.Log.Error("cannot write an acknowledgement to the journal", "error", err)
	}
	switch g.Order {
	case trivet.OrderBoot:
		a.Log.Info("ordered to boot the local disk", "cause", g.Cause)
		a.drop()
		return action.EndBoot
	case trivet.OrderOff:
		a.Log.Info("ordered to power off", "cause", g.Cause)
		a.drop()
		return action.EndOff
	case trivet.OrderStop:
		a.Log.Warn("ordered to stop", "epoch", a.epoch, "cause", g.Cause)
		return a.drop()
	}
	switch {
	case g.Run != nil && g.Epoch != a.epoch:
		return a.adopt(g)
	case a.work != nil && g.Epoch != a.epoch:
		a.Log.Warn("the run was granted to another agent", "epoch", a.epoch, "newEpoch", g.Epoch)
		return a.drop()
	}
	a.setPaused(g.Paused)
	return action.EndNone
}

// ignore skips an answer of an old epoch. Heads that answer so for long have another history, from a backup: an agent
// without a run then reboots.
func (a *agent) ignore(g trivet.Grant) action.Ending {
	a.Log.Warn("a head answered with an old epoch", "epoch", a.epoch, "dropped", a.dropped, "answered", g.Epoch)
	if a.behind++; a.behind < behindMax || a.work != nil {
		return action.EndNone
	}
	return action.EndReboot
}

// learn stores what every answer carries: time, name, interval and addresses.
func (a *agent) learn(g trivet.Grant) {
	a.Clock.Learn(g.Time)
	if g.Machine != "" {
		a.machine = g.Machine
	}
	if g.Interval > 0 {
		a.interval = min(max(g.Interval.D(), intervalMin), intervalMax)
	}
	if len(g.Blobs) > 0 {
		a.mu.Lock()
		a.blobs = slices.Clone(g.Blobs)
		a.mu.Unlock()
	}
	if h := (Heads{slices.Clone(g.Heads), g.Trust}); len(h.URLs) > 0 &&
		(!slices.Equal(h.URLs, a.heads.URLs) || h.Trust != a.heads.Trust) {
		a.heads = h
		a.saveHeads()
	}
}

func (a *agent) blobURLs() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.blobs)
}

// adopt starts a granted run.
func (a *agent) adopt(g trivet.Grant) action.Ending {
	if ending := a.drop(); ending != action.EndNone {
		return ending
	}
	a.epoch = g.Epoch
	if err := a.Journal.Grant(g.Epoch, g.Acked, g.Run.UID, a.BootID); err != nil {
		a.Log.Error("cannot write the grant to the journal", "error", err)
	}
	a.granted = g
	a.saveState(g)
	a.Log.Info("run started", "workflow", g.Run.Workflow, "epoch", g.Epoch, "done", len(g.Run.Done))
	a.work = a.newWork(g.Run, progressOf(g.Run))
	a.work.gate.set(g.Paused)
	a.work.start()
	return action.EndNone
}

// drop stops the run, if any, without further reports. A machine in which an action does not end must reboot.
func (a *agent) drop() action.Ending {
	stuck := a.stopWork()
	a.dropped, a.epoch = max(a.dropped, a.epoch), 0
	a.forgetState()
	if stuck {
		return action.EndReboot
	}
	return action.EndNone
}

// stopWork cancels the run and waits for its end, which is bounded. It reports whether an action did not end.
func (a *agent) stopWork() (stuck bool) {
	if a.work == nil {
		return false
	}
	a.work.cancel()
	<-a.work.over
	stuck = a.work.outcome.stuck
	a.work = nil
	return stuck
}
