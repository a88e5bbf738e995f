package workflow

import (
	"fmt"
	"time"

	"github.com/trivet-project/trivet"
)

// SyncWrite is what a sync of an agent makes a head write.
type SyncWrite int

// What is written.
const (
	WriteNothing SyncWrite = iota // a heartbeat
	WriteReports                  // its reports; or that an agent which was declared lost has returned
	WriteGrant                    // the idle agent, which was not heard at the claim or is lost since, is granted the run
	WriteIdle                     // the machine is unverified, and its agent has been idle since it was
)

// DecideSync returns what a sync of the machine's agent makes a head write. w is the machine's run; nil where it has
// none. A heartbeat of an agent at work, or of an idle one without a run, writes nothing.
func DecideSync(m *trivet.Machine, w *trivet.Workflow, s *trivet.Sync) (SyncWrite, error) {
	if StateOf(&m.Status) == trivet.MachineUnverified && s.Epoch == 0 && len(s.Reports) == 0 &&
		s.BootID == m.Status.BootID {
		return WriteIdle, nil // the installer runs, as it did before the recovery, and nothing else does
	}
	if w == nil {
		return WriteNothing, nil
	}
	st, n := &w.Status, len(s.Reports)
	booting := AwaitsAgent(w)
	switch {
	case n > 0 && s.Epoch != m.Status.Epoch:
		return WriteNothing, fmt.Errorf("%w: the reports are of epoch %d, the machine's is %d", trivet.ErrFenced,
			s.Epoch, m.Status.Epoch)
	case n > 0 && s.Reports[n-1].Seq > st.Acked, s.Epoch != 0 && st.Epoch == s.Epoch && booting:
		return WriteReports, nil
	case n == 0 && booting && st.Epoch == 0 && s.Epoch <= w.Spec.Epoch: // idle since before the claim
		return WriteGrant, nil
	case n == 0 && booting && st.Epoch == m.Status.Epoch && s.Epoch < st.Epoch: // lost before the grant reached it
		return WriteGrant, nil
	}
	return WriteNothing, nil
}

// CheckEpoch fails with ErrFenced for an epoch that the machine has not had.
func CheckEpoch(m *trivet.Machine, epoch int64) error {
	if epoch > m.Status.Epoch {
		return fmt.Errorf("%w: the machine's epoch is %d, the agent has %d", trivet.ErrFenced, m.Status.Epoch, epoch)
	}
	return nil
}

// CheckKey fails with ErrFenced for an agent that is no longer the machine's.
func CheckKey(m *trivet.Machine, key string) error {
	if m.Status.AgentKey != key {
		return fmt.Errorf("%w: another agent has registered for the machine", trivet.ErrFenced)
	}
	return nil
}

// CheckHello decides about a hello with a boot token of an epoch. A repeated one, after a response was lost, changes
// nothing.
func CheckHello(m *trivet.Machine, h *trivet.Hello, epoch int64) (repeated bool, err error) {
	if m.Status.AgentKey == h.Key && m.Status.BootID == h.BootID {
		return true, nil
	}
	if m.Status.Epoch != epoch {
		return false, &trivet.Error{Op: "spend boot token", Hint: "boot the machine again to get a new one",
			Err: fmt.Errorf("%w: it is of epoch %d; the machine's is %d", trivet.ErrFenced, epoch, m.Status.Epoch)}
	}
	return false, nil
}

// CheckReports decides about the reports of an agent. w is the machine's run; nil where it has none. Those that are
// acknowledged already, of a run that has ended, change nothing.
func CheckReports(m *trivet.Machine, w *trivet.Workflow, s *trivet.Sync) (repeated bool, err error) {
	if m.Status.Epoch != s.Epoch || m.Status.BootID != s.BootID {
		return false, fmt.Errorf("%w: the agent has epoch %d, the machine %d", trivet.ErrFenced, s.Epoch,
			m.Status.Epoch)
	}
	if w == nil || w.Status.Epoch != s.Epoch {
		return false, fmt.Errorf("%w: no run is granted under epoch %d", trivet.ErrFenced, s.Epoch)
	}
	n := len(s.Reports)
	return w.Status.State.Ended() && (n == 0 || s.Reports[n-1].Seq <= w.Status.Acked), nil
}

// AwaitsAgent reports whether the run may be granted to the machine's idle agent.
func AwaitsAgent(w *trivet.Workflow) bool {
	return w != nil && w.Status.State == trivet.WorkflowBooting && w.Status.Paused == nil && !w.Status.Frozen
}

// AwaitedAgent returns the epoch of the agent that holds the run; false where none does.
func AwaitedAgent(w *trivet.Workflow) (epoch int64, ok bool) {
	return w.Status.Epoch, w.Status.State == trivet.WorkflowRunning && !w.Status.Frozen
}

// Acked returns the sequence number up to which reports under the machine's epoch are acknowledged.
func Acked(m *trivet.Machine, w *trivet.Workflow) int64 {
	if w == nil || w.Status.Epoch != m.Status.Epoch {
		return 0
	}
	return w.Status.Acked
}

// GrantedRun returns the run that the machine's agent holds under its epoch; nil where there is none.
func GrantedRun(m *trivet.Machine, w *trivet.Workflow) *trivet.Run {
	if w == nil || !GrantedTo(m, w) {
		return nil
	}
	return work(w)
}

// HelloOrder returns what an agent without a run must do. On a machine whose system is installed it boots the disk:
// it was started by the boot script of a head that did not know yet, a moment after the last report.
func HelloOrder(m *trivet.Machine, w *trivet.Workflow) (order trivet.Order, cause string) {
	starting := w != nil && w.Status.State == trivet.WorkflowStarting && !w.Status.Frozen
	if StateOf(&m.Status) == trivet.MachineActive || starting {
		return trivet.OrderBoot, "the machine is installed and has nothing else to do here"
	}
	return trivet.OrderNone, ""
}

// ResetSilence returns how long an agent must be silent until a boot script or a hello of its machine is believed:
// longer than two heartbeats of an agent at work, and shorter than what declares it lost.
func ResetSilence(agentTimeout time.Duration) time.Duration { return agentTimeout * 5 / 8 }

// HeartbeatInterval returns how often agents at work must sync: several times within the timeout after which they are
// declared lost.
func HeartbeatInterval(agentTimeout trivet.Duration) trivet.Duration { return agentTimeout / 4 }

// IdleWait returns how long an idle agent may wait for work in one sync. It is judged by the same timeout as one at
// work, and syncs less often.
func IdleWait(asked, agentTimeout trivet.Duration) trivet.Duration {
	return min(asked, trivet.MaxWait, agentTimeout/2)
}
