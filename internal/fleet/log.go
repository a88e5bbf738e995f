package fleet

import (
	"cmp"
	"context"
	"log/slog"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/store"
)

// logged are the reasons of events that are logged at info: what changes the state of a machine or its run. The others
// are the steps of a run, which are logged at debug; those that are warnings are logged as such. The power that a BMC
// has set is logged by the head that used it.
var logged = map[string]bool{
	trivet.ReasonEnrolled: true, trivet.ReasonAccepted: true, trivet.ReasonRenamed: true,
	trivet.ReasonQuarantined: true, trivet.ReasonClaimed: true, trivet.ReasonSwitched: true, trivet.ReasonPaused: true,
	trivet.ReasonResumed: true, trivet.ReasonRetried: true, trivet.ReasonRacing: true, trivet.ReasonRaceWon: true,
	trivet.ReasonRaceLost: true, trivet.ReasonReplaced: true, trivet.ReasonRedeployed: true, trivet.ReasonReleased: true,
	trivet.ReasonReleasing: true, trivet.ReasonAvailable: true, trivet.ReasonPowerRequested: true,
	trivet.ReasonPowerExpired: true, trivet.ReasonPowerFailed: true, trivet.ReasonAgentLost: true,
	trivet.ReasonDeadlineExceeded: true, trivet.ReasonActionFailed: true, trivet.ReasonSucceeded: true,
	trivet.ReasonFailed: true, trivet.ReasonCancelled: true, trivet.ReasonResolved: true,
}

// logEvent logs an event of a machine when its transaction is committed, so once for each change of state.
func (f *Fleet) logEvent(tx *store.Tx, machine string, e *trivet.EventSpec) {
	if f.Log == nil {
		return
	}
	level := slog.LevelDebug
	switch {
	case e.Warning:
		level = slog.LevelWarn
	case logged[e.Reason]:
		level = slog.LevelInfo
	}
	args := []any{"machine", machine, "reason", e.Reason, "message", e.Message}
	if e.Step != "" {
		args = append(args, "step", e.Step)
	}
	if e.Workflow != "" {
		args = append(args, "workflow", e.Workflow)
	}
	tx.AfterCommit(func() { f.Log.Log(context.Background(), level, "machine event", args...) })
}

// logEnd logs, after the commit, a provision that ended.
func (f *Fleet) logEnd(tx *store.Tx, name string, st *trivet.ProvisionStatus) {
	if f.Log == nil || !st.State.Ended() {
		return
	}
	args := []any{"provision", name, "state", st.State, "machine", cmp.Or(st.Machine, "none")}
	if st.Reason != "" {
		args = append(args, "reason", st.Reason)
	}
	tx.AfterCommit(func() { f.Log.Info("provision ended", args...) })
}
