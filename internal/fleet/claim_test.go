package fleet_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/store"
)

// between is a context that calls do once, when a transaction begins: after the claim has chosen a machine.
type between struct {
	context.Context
	once *sync.Once
	do   func()
}

func (b between) Deadline() (time.Time, bool) {
	b.once.Do(b.do)
	return b.Context.Deadline()
}

// A provision by selector whose machine is deleted between choice and claim gets another one.
func TestChosenMachineIsDeleted(t *testing.T) {
	r := newRack(t)
	label := map[string]string{"pool": "a"}
	r.write(func(tx *store.Tx) error {
		var errs []error
		for name, mac := range map[string]string{"a1": "52:54:00:00:02:01", "a2": "52:54:00:00:02:02"} {
			errs = append(errs, r.Machines.In(tx).Create(&trivet.Machine{Meta: trivet.Meta{Name: name, Labels: label},
				Spec:   trivet.MachineSpec{NICs: []trivet.NIC{{MAC: mac}}},
				Status: trivet.MachineStatus{State: trivet.MachineAvailable}}))
		}
		return errors.Join(append(errs, r.Provisions.In(tx).Create(&trivet.Provision{
			Meta: trivet.Meta{Project: "default", Name: "p"},
			Spec: trivet.ProvisionSpec{Template: "t", Selector: label}}))...)
	})
	ctx := between{t.Context(), new(sync.Once), func() {
		r.write(func(tx *store.Tx) error { return r.Machines.In(tx).Delete("a1") })
	}}
	if err := r.Claim(ctx, "default/p"); !errors.Is(err, trivet.ErrConflict) {
		t.Errorf("the claim of a deleted machine: %v, want conflict, so that the caller chooses again", err)
	}
	r.must(r.Claim(t.Context(), "default/p"))
	if p, err := r.Provisions.Get("default/p"); err != nil || p.Status.Machine != "a2" {
		t.Errorf("the provision: %+v, %v", p.Status, err)
	}
}
