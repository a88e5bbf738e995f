package provision

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/addressing"
	"github.com/trivet-project/trivet/internal/fleet"
	"github.com/trivet-project/trivet/internal/reconcile/reconciletest"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/storetest"
)

// setUp creates a machine in the only network, a template that names an image, and a provision of all that.
func setUp(ctx context.Context, f *fleet.Fleet, name string, n int) error {
	mac := fmt.Sprintf("52:54:00:00:00:%02x", n)
	image := trivet.ImageSpec{Format: "raw", Blob: trivet.BlobRef{Digest: "sha256:" + strings.Repeat("0", 64), Bytes: 1,
		Chunks: "sha256:" + strings.Repeat("0", 64)}}
	_, err := f.Store.Update(ctx, func(tx *store.Tx) error {
		return errors.Join(
			f.Networks.In(tx).Put(&trivet.Network{Meta: trivet.Meta{Name: "net"},
				Spec: trivet.NetworkSpec{CIDR: netip.MustParsePrefix("10.0.0.0/24"), Ranges: []trivet.Range{
					{From: netip.MustParseAddr("10.0.0.10"), To: netip.MustParseAddr("10.0.0.99")}}}}),
			f.Images.In(tx).Put(&trivet.Image{Meta: trivet.Meta{Project: "default", Name: "os"}, Spec: image}),
			f.Templates.In(tx).Put(&trivet.Template{Meta: trivet.Meta{Project: "default", Name: "t"},
				Spec: trivet.TemplateSpec{Actions: []trivet.Action{
					{Name: "image", Use: "image", With: map[string]any{"image": "os"}}}}}),
			f.Machines.In(tx).Put(&trivet.Machine{Meta: trivet.Meta{Name: name, Labels: map[string]string{"n": name}},
				Spec:   trivet.MachineSpec{NICs: []trivet.NIC{{MAC: mac}}},
				Status: trivet.MachineStatus{State: trivet.MachineAvailable}}),
			f.Provisions.In(tx).Put(&trivet.Provision{Meta: trivet.Meta{Project: "default", Name: name},
				Spec: trivet.ProvisionSpec{Template: "t", Selector: map[string]string{"n": name}}}),
		)
	})
	return err
}

func TestDeclaration(t *testing.T) {
	f := fleet.New(storetest.New(t, state.New), "head0")
	f.Propose = addressing.New(addressing.Config{Tables: f.Tables}).Propose
	reconciletest.Exact(t, Declaration, func(ctx context.Context, scope *store.Scope, n int) error {
		name := fmt.Sprint("m", n)
		if err := setUp(t.Context(), f, name, n); err != nil {
			return err
		}
		limited := f.Within(scope)
		if _, err := New(limited, limited.Tables).Reconcile(ctx, "default/"+name); err != nil {
			return err
		}
		if m, err := f.Machines.Get(name); err != nil || m.Status.State != trivet.MachineClaimed {
			return fmt.Errorf("the machine is %+v: %w", m, err)
		}
		return nil
	})
}

// A provision without a machine is tried again when a machine becomes available, and not for other changes of
// machines.
func TestPendingProvision(t *testing.T) {
	f := fleet.New(storetest.New(t, state.New), "head0")
	c := New(f, f.Tables)
	put := func(state trivet.MachineState, cordoned bool) {
		t.Helper()
		_, err := f.Store.Update(t.Context(), func(tx *store.Tx) error {
			return f.Machines.In(tx).Put(&trivet.Machine{Meta: trivet.Meta{Name: "m1"},
				Spec:   trivet.MachineSpec{Cordoned: cordoned},
				Status: trivet.MachineStatus{State: state}})
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err := f.Store.Update(t.Context(), func(tx *store.Tx) error {
		return f.Provisions.In(tx).Put(&trivet.Provision{Meta: trivet.Meta{Project: "default", Name: "p"},
			Spec: trivet.ProvisionSpec{Template: "t", Machine: "m1"}})
	})
	if err != nil {
		t.Fatal(err)
	}
	if after, err := c.Reconcile(t.Context(), "default/p"); err != nil || after != pendingInterval {
		t.Errorf("a provision without a machine is tried again after %s, %v", after, err)
	}
	watch := f.Store.Watch(0, Declaration.Watches...)
	for _, tc := range []struct {
		state    trivet.MachineState
		cordoned bool
		want     []string
	}{
		{trivet.MachineDiscovered, false, nil},
		{trivet.MachineAvailable, false, []string{"default/p"}},
		{trivet.MachineAvailable, true, nil},
		{trivet.MachineAvailable, false, []string{"default/p"}},
		{trivet.MachineQuarantined, false, nil},
	} {
		put(tc.state, tc.cordoned)
		events, err := watch.Next(t.Context())
		if err != nil || len(events) != 1 {
			t.Fatalf("%v, %v", events, err)
		}
		if got := c.Affected(events[0]); !slices.Equal(got, tc.want) {
			t.Errorf("a machine that is %s (cordoned: %t) concerns %v, want %v", tc.state, tc.cordoned, got, tc.want)
		}
	}
}
