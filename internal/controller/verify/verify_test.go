package verify

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/fleet"
	"github.com/trivet-project/trivet/internal/reconcile/reconciletest"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/storetest"
)

// add creates a machine whose last run has ended.
func add(t *testing.T, f *fleet.Fleet, name string, st trivet.MachineStatus) {
	t.Helper()
	_, err := f.Store.Update(t.Context(), func(tx *store.Tx) error {
		st.Workflow = name + "-1"
		m := &trivet.Machine{Meta: trivet.Meta{Name: name},
			Spec:   trivet.MachineSpec{BMC: &trivet.BMC{Protocol: "ipmi", Address: "127.0.0.1", Secret: "bmc"}},
			Status: st}
		err := f.Machines.In(tx).Create(m)
		w := &trivet.Workflow{Meta: trivet.Meta{Project: "default", Name: st.Workflow},
			Spec:   trivet.WorkflowSpec{Machine: name, MachineUID: m.UID},
			Status: trivet.WorkflowStatus{State: trivet.WorkflowFailed}}
		return errors.Join(err, f.Workflows.In(tx).Put(w))
	})
	if err != nil {
		t.Fatal(err)
	}
}

func answers(power string, err error) func(context.Context, *trivet.Machine) (string, error) {
	return func(context.Context, *trivet.Machine) (string, error) { return power, err }
}

func TestDeclaration(t *testing.T) {
	f := fleet.New(storetest.New(t, state.New), "head0")
	reconciletest.Exact(t, Declaration, func(ctx context.Context, scope *store.Scope, n int) error {
		name := fmt.Sprint("m", n)
		add(t, f, name, trivet.MachineStatus{State: trivet.MachineUnverified})
		limited := f.Within(scope)
		if _, err := New(limited, limited.Tables, answers("off", nil)).Reconcile(ctx, name); err != nil {
			return err
		}
		if m, err := f.Machines.Get(name); err != nil || m.Status.State != trivet.MachineAvailable {
			return fmt.Errorf("the machine is %+v: %w", m, err)
		}
		return nil
	})
}

// Only a machine that is off becomes available. Those that are not unverified, or have a power request, are not asked.
func TestVerify(t *testing.T) {
	f := fleet.New(storetest.New(t, state.New), "head0")
	for name, c := range map[string]struct {
		status trivet.MachineStatus
		power  string
		err    error
		want   string
	}{
		"off":       {trivet.MachineStatus{State: trivet.MachineUnverified}, "off", nil, "available"},
		"on":        {trivet.MachineStatus{State: trivet.MachineUnverified}, "on", nil, "unverified"},
		"fails":     {trivet.MachineStatus{State: trivet.MachineUnverified}, "", trivet.ErrUnavailable, "unverified"},
		"releasing": {trivet.MachineStatus{State: trivet.MachineReleasing}, "off", nil, "releasing"},
		"requested": {trivet.MachineStatus{State: trivet.MachineUnverified, Intent: &trivet.PowerIntent{Want: "cycle"}},
			"off", nil, "unverified"},
		"quarantined": {trivet.MachineStatus{State: trivet.MachineQuarantined, Former: trivet.MachineUnverified},
			"off", nil, "quarantined"},
	} {
		add(t, f, name, c.status)
		after, err := New(f, f.Tables, answers(c.power, c.err)).Reconcile(t.Context(), name)
		if !errors.Is(err, c.err) || (after > 0) != (name == "on") {
			t.Errorf("%s: %v, again after %s", name, err, after)
		}
		if m, err := f.Machines.Get(name); err != nil || string(m.Status.State) != c.want {
			t.Errorf("%s is %+v, %v", name, m.Status, err)
		}
	}
}
