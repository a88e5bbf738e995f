package fleet

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/reconcile"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/workflow"
)

// maxPowerError bounds the error of a BMC that a record has.
const maxPowerError = 512

// ObservePower records what the BMC of a machine reported when it was read, or why it did not. It changes nothing where
// the record has that, or has changed since m was read: a command may have been carried out meanwhile.
func (f *Fleet) ObservePower(ctx context.Context, m *trivet.Machine, power string, cause error) error {
	was := m.Status
	if !observe(&was, m.Spec.BMC, power, cause, f.now()) { // most do not: no transaction, which needs a quorum
		return nil
	}
	err := f.update(ctx, func(tx *store.Tx) error {
		now, err := f.Machines.In(tx).Get(m.Name)
		if err != nil {
			return err
		}
		st := &now.Status
		if now.UID != m.UID || now.Revision != m.Revision || st.Intent != nil {
			return errUnchanged
		}
		failed := st.PowerError
		changed := observe(st, now.Spec.BMC, power, cause, f.now())
		if trivet.PowerErrorRelease.Compare(tx.ClusterVersion()) > 0 { // the write would be refused
			st.PowerError, changed = failed, st.Power != m.Status.Power
		}
		if !changed {
			return errUnchanged
		}
		t := &transition{tx: tx, machine: now}
		t.notePowerChanged(m.Status.Power)
		if err := f.saveEvents(t); err != nil {
			return err
		}
		return f.Machines.In(tx).Put(now)
	})
	if err != nil {
		return &trivet.Error{Op: "record the power of", Kind: "Machine", Name: m.Name, Err: err}
	}
	return nil
}

// notePowerChanged adds an event where something else than Trivet has switched the machine. Where no state was known,
// as after a recovery, nothing says so.
func (t *transition) notePowerChanged(was string) {
	st := &t.machine.Status
	if was == "" || st.Power == was {
		return
	}
	e := workflow.Event{Reason: trivet.ReasonPowerChanged,
		Message: fmt.Sprintf("the BMC reports the machine %s; it was %s, and no power request has changed that", st.Power,
			was)}
	switch workflow.StateOf(st) {
	case trivet.MachineActive, trivet.MachineProvisioning:
		e.Warning = st.Power == trivet.PowerOff
	}
	t.events = append(t.events, e)
}

// observe sets in a machine's status what its BMC reported, or why it did not, and reports whether that is news. A nil
// BMC is one that the machine does not have any more.
func observe(st *trivet.MachineStatus, b *trivet.BMC, power string, cause error, now time.Time) (changed bool) {
	if b != nil && cause != nil {
		return observeError(st, "BMC "+b.Address+": ", cause.Error(), now)
	}
	changed = st.PowerError != nil
	st.PowerError = nil
	if b != nil && (power == trivet.PowerOn || power == trivet.PowerOff) && power != st.Power {
		st.Power, changed = power, true
	}
	return changed
}

// observeError sets why a BMC was not read. The record keeps an error that differs in numbers only: ports, times and
// request IDs.
func observeError(st *trivet.MachineStatus, prefix, text string, now time.Time) (changed bool) {
	text = strings.ToValidUTF8(text[:min(len(text), maxPowerError)], "")
	next := &trivet.PowerError{Cause: prefix + text, Since: now}
	if was := st.PowerError; was != nil {
		if strings.HasPrefix(was.Cause, prefix) && reconcile.WithoutNumbers(was.Cause) == reconcile.WithoutNumbers(next.Cause) {
			return false
		}
		next.Since = was.Since
	}
	st.PowerError = next
	return true
}
