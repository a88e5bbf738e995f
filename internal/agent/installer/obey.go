package installer

import (
	"slices"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/agent/action"
)

// Bounds of the beat that a head may ask for.
const (
	beatMin = 500 * time.Millisecond
	beatMax = time.Minute
)

// obey does what a head's answer says. One of an epoch that is over is from a head that is behind: it knows neither the run
// that another head granted nor that one was taken away, so its orders and its run count for nothing.
func (a *agent) obey(g trivet.Grant) action.Ending {
	a.learn(g)
	a.met.Do(func() { close(a.logs.known) })
	if g.Epoch < max(a.epoch, a.dropped) || g.Epoch == a.dropped && g.Run != nil {
		return a.doubt(g)
	}
	a.behind = 0
	if err := a.Journal.Ack(g.Epoch, g.Acked); err != nil {
		a.Log.Error("an acknowledgement was not kept", "error", err)
	}
	switch g.Order {
	case trivet.OrderBoot:
		a.Log.Info("told to boot the local disk", "cause", g.Cause)
		a.drop()
		return action.EndBoot
	case trivet.OrderOff:
		a.Log.Info("told to power off", "cause", g.Cause)
		a.drop()
		return action.EndOff
	case trivet.OrderStop:
		a.Log.Warn("told to stop", "epoch", a.epoch, "cause", g.Cause)
		return a.drop()
	}
	switch {
	case g.Run != nil && g.Epoch != a.epoch:
		return a.adopt(g)
	case a.work != nil && g.Epoch != a.epoch:
		a.Log.Warn("the run was granted anew elsewhere", "epoch", a.epoch, "now", g.Epoch)
		return a.drop()
	}
	return action.EndNone
}

// doubt passes over an answer of an epoch that is over. When all heads give such answers for long, they have another history,
// from a backup, and an agent without a run boots again into that.
func (a *agent) doubt(g trivet.Grant) action.Ending {
	a.Log.Warn("a head is behind", "epoch", a.epoch, "dropped", a.dropped, "its", g.Epoch)
	if a.behind++; a.behind < behindMax || a.work != nil {
		return action.EndNone
	}
	return action.EndReboot
}

// learn takes what every answer carries.
func (a *agent) learn(g trivet.Grant) {
	a.Clock.Learn(g.Time)
	if g.Machine != "" {
		a.machine = g.Machine
	}
	if g.Interval > 0 {
		a.beat = min(max(g.Interval.D(), beatMin), beatMax)
	}
	if len(g.Blobs) > 0 {
		a.mu.Lock()
		a.blobs = slices.Clone(g.Blobs)
		a.mu.Unlock()
	}
	if len(g.Heads) > 0 && !slices.Equal(g.Heads, a.heads) {
		a.heads = slices.Clone(g.Heads)
		a.saveHeads()
	}
}

func (a *agent) blobURLs() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.blobs)
}

// adopt begins a run that was granted.
func (a *agent) adopt(g trivet.Grant) action.Ending {
	if ending := a.drop(); ending != action.EndNone {
		return ending
	}
	a.epoch = g.Epoch
	if err := a.Journal.Grant(g.Epoch, g.Acked, g.Run.UID, a.BootID); err != nil {
		a.Log.Error("the grant was not kept in the journal", "error", err)
	}
	a.saveState(g)
	a.Log.Info("begins a run", "workflow", g.Run.Workflow, "epoch", g.Epoch, "done", len(g.Run.Done))
	a.work = a.newWork(g.Run, progressOf(g.Run))
	a.work.start()
	return action.EndNone
}

// drop stops the run, if there is one, and forgets it: nothing more of it is reported. A machine in which an action does not
// end must boot again.
func (a *agent) drop() action.Ending {
	stuck := a.stopWork()
	a.dropped, a.epoch = max(a.dropped, a.epoch), 0
	a.forgetState()
	if stuck {
		return action.EndReboot
	}
	return action.EndNone
}

// stopWork cancels what runs and waits for its death, which is bounded. It reports whether something would not die.
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
