package provision

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

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

// calls counts what the controller asks of the fleet.
type calls struct {
	claims, offers []string
	pages          int // of rechecks that are left
	rechecked      []*trivet.Provision
}

func (c *calls) Claim(_ context.Context, provision string) error {
	c.claims = append(c.claims, provision)
	return nil
}

func (c *calls) Offer(_ context.Context, machine string) error {
	c.offers = append(c.offers, machine)
	return nil
}

func (c *calls) Recheck(_ context.Context, after *trivet.Provision, _ int) (*trivet.Provision, error) {
	c.rechecked = append(c.rechecked, after)
	if c.pages--; c.pages <= 0 {
		return nil, nil
	}
	return &trivet.Provision{Meta: trivet.Meta{Project: "default", Name: fmt.Sprint("p", len(c.rechecked))}}, nil
}

// A machine that becomes available is one decision, however many provisions wait. Other changes of machines are none.
func TestAvailableMachineIsOneDecision(t *testing.T) {
	tables := storetest.New(t, state.New)
	c := New(&calls{}, tables)
	put := func(r trivet.Record) []string {
		t.Helper()
		watch := tables.Store.Watch(0, Declaration.Watches...)
		if _, err := tables.Store.Update(t.Context(), func(tx *store.Tx) error { return tx.PutRecord(r) }); err != nil {
			t.Fatal(err)
		}
		events, err := watch.Next(t.Context())
		if err != nil || len(events) != 1 {
			t.Fatalf("%v, %v", events, err)
		}
		return c.Affected(events[0])
	}
	want := func(what string, got []string, want ...string) {
		t.Helper()
		if !slices.Equal(got, want) {
			t.Errorf("%s concerns %v, want %v", what, got, want)
		}
	}
	p := func(n int, state trivet.ProvisionState, reason, image string) *trivet.Provision {
		return &trivet.Provision{Meta: trivet.Meta{Project: "default", Name: fmt.Sprint("p", n)},
			Spec:   trivet.ProvisionSpec{Template: "t", Selector: map[string]string{"a": "b"}},
			Status: trivet.ProvisionStatus{State: state, Reason: reason, WaitsFor: image}}
	}
	for n := range 20 {
		want("a new provision", put(p(n, "", "", "")), fmt.Sprint("default/p", n))
		want("why it waits", put(p(n, trivet.ProvisionPending, "no machine is free", "")))
	}
	m := func(state trivet.MachineState, cordoned bool, label string) *trivet.Machine {
		return &trivet.Machine{Meta: trivet.Meta{Name: "m1", Labels: map[string]string{"a": label}},
			Spec:   trivet.MachineSpec{Cordoned: cordoned, NICs: []trivet.NIC{{MAC: "52:54:00:00:00:01"}}},
			Status: trivet.MachineStatus{State: state}}
	}
	want("a discovered machine", put(m(trivet.MachineDiscovered, false, "b")))
	want("an available machine", put(m(trivet.MachineAvailable, false, "b")), machineKey+"m1")
	want("a cordoned machine", put(m(trivet.MachineAvailable, true, "b")))
	want("a machine that is not cordoned", put(m(trivet.MachineAvailable, false, "b")), machineKey+"m1")
	want("a label", put(m(trivet.MachineAvailable, false, "c")), machineKey+"m1")
	want("a quarantined machine", put(m(trivet.MachineQuarantined, false, "c")))

	want("a fault of its image", put(p(3, trivet.ProvisionPending, "at fault", "image os")))
	image := &trivet.Image{Meta: trivet.Meta{Project: "default", Name: "os"}, Spec: trivet.ImageSpec{Format: "raw",
		Blob: trivet.BlobRef{Digest: "sha256:" + strings.Repeat("0", 64), Bytes: 1,
			Chunks: "sha256:" + strings.Repeat("0", 64)}}}
	want("the image", put(image), "default/p3")
	want("the end of its fault", put(p(3, trivet.ProvisionPending, "", "")), "default/p3")
	want("a running provision", put(p(3, trivet.ProvisionRunning, "", "")))
	want("a network", put(&trivet.Network{Meta: trivet.Meta{Name: "net"},
		Spec: trivet.NetworkSpec{CIDR: netip.MustParsePrefix("10.0.0.0/24")}}), recheckKey)
}

// All waiting provisions are rechecked page by page, and from the beginning where a network or platform has changed.
func TestRecheckPages(t *testing.T) {
	f := &calls{pages: 3}
	c := New(f, storetest.New(t, state.New))
	if keys := c.Keys(); !slices.Equal(keys, []string{recheckKey}) {
		t.Errorf("the keys are %v", keys)
	}
	next := func(want time.Duration) {
		t.Helper()
		if after, err := c.Reconcile(t.Context(), recheckKey); err != nil || after != want {
			t.Errorf("the next page follows after %s, %v; want %s", after, err, want)
		}
	}
	next(pageInterval)
	next(pageInterval)
	next(recheckInterval)
	f.pages = 3
	next(pageInterval)
	c.restart()
	next(pageInterval)
	next(recheckInterval)
	var after []string
	for _, p := range f.rechecked {
		name := ""
		if p != nil {
			name = p.Name
		}
		after = append(after, name)
	}
	if want := []string{"", "p1", "p2", "", "", "p5"}; !slices.Equal(after, want) {
		t.Errorf("pages begin after %q, want %q", after, want)
	}
}
