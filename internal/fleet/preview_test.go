package fleet_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/store"
)

// preview returns the run that a stored provision would start.
func (r *rack) preview(name string) (w *trivet.Workflow, waits string) {
	r.Helper()
	p, err := r.Provisions.Get(name)
	r.must(err)
	v, err := r.Preview(p)
	r.must(err)
	errTried := errors.New("tried only")
	_, err = r.Store.Update(r.Context(), func(tx *store.Tx) error {
		var err error
		if w, err = v.Run(tx, p); err != nil {
			return err
		}
		return errTried
	})
	if !errors.Is(err, errTried) {
		r.Fatal(err)
	}
	return w, v.Waits
}

// A preview is the run that a claim starts, of a machine that boots and of one with an idle agent, also while another
// state prevents the claim.
func TestPreviewIsWhatAClaimStarts(t *testing.T) {
	for _, idle := range []bool{false, true} {
		r := newRack(t)
		setState := func(state trivet.MachineState) {
			r.write(func(tx *store.Tx) error {
				m, err := r.Machines.In(tx).Get("m1")
				if err != nil {
					return err
				}
				if m.Status.State = state; idle {
					m.Status.AgentKey, m.Status.Epoch = "k1", 1
				}
				return r.Machines.In(tx).Put(m)
			})
		}
		r.AgentUp = func(string, int64) bool { return idle }
		r.write(func(tx *store.Tx) error {
			return r.Provisions.In(tx).Create(&trivet.Provision{Meta: trivet.Meta{Project: "default", Name: "p"},
				Spec: trivet.ProvisionSpec{Template: "t", Machine: "m1", Hostname: "h"}})
		})
		setState(trivet.MachineQuarantined)
		first, waits := r.preview("default/p")
		if waits != "no machine is free: 1 quarantined" {
			t.Errorf("in quarantine: %q", waits)
		}
		setState(trivet.MachineAvailable)
		second, waits := r.preview("default/p")
		if waits != "" {
			t.Errorf("available: %q", waits)
		}
		r.must(r.Claim(t.Context(), "default/p"))
		got, err := r.Workflows.Get("default/p-1")
		r.must(err)
		for _, w := range []*trivet.Workflow{first, second} {
			if diff := cmp.Diff(got.Spec, w.Spec, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("idle agent: %v: the spec of the claim and of the preview:\n%s", idle, diff)
			}
			if diff := cmp.Diff(withoutTimes(got.Status.Steps), withoutTimes(w.Status.Steps)); diff != "" {
				t.Errorf("idle agent: %v: the steps of the claim and of the preview:\n%s", idle, diff)
			}
		}
	}
}

func withoutTimes(steps []trivet.Step) (all []trivet.Step) {
	for _, s := range steps {
		all = append(all, trivet.Step{Name: s.Name, State: s.State, MaxAttempts: s.MaxAttempts, Timeout: s.Timeout,
			Note: s.Note})
	}
	return all
}
