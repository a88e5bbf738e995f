package members

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/fleet"
	"github.com/trivet-project/trivet/internal/reconcile/reconciletest"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/storetest"
)

func newFleet(t *testing.T) *fleet.Fleet {
	t.Helper()
	f := fleet.New(storetest.New(t, state.New), "head0")
	write(t, f, func(tx *store.Tx) error {
		return errors.Join(
			f.Sites.In(tx).Put(&trivet.Site{Meta: trivet.Meta{Name: trivet.SiteName},
				Status: trivet.SiteStatus{ClusterVersion: trivet.CurrentRelease}}),
			f.Templates.In(tx).Put(&trivet.Template{Meta: trivet.Meta{Project: "default", Name: "t"},
				Spec: trivet.TemplateSpec{Actions: []trivet.Action{{Name: "work", Use: "seed"}}}}))
	})
	return f
}

func write(t *testing.T, f *fleet.Fleet, do func(tx *store.Tx) error) {
	t.Helper()
	if _, err := f.Store.Update(t.Context(), do); err != nil {
		t.Fatal(err)
	}
}

func many(name string, count int) *trivet.Provision {
	return &trivet.Provision{Meta: trivet.Meta{Project: "default", Name: name},
		Spec: trivet.ProvisionSpec{Template: "t", Selector: map[string]string{"n": name}, Count: &count}}
}

// settle reconciles a key until there is nothing to do.
func settle(ctx context.Context, c *Controller, key string) error {
	for after := time.Duration(1); after > 0; {
		var err error
		if after, err = c.Reconcile(ctx, key); err != nil {
			return err
		}
	}
	return nil
}

func TestDeclaration(t *testing.T) {
	f := newFleet(t)
	reconciletest.Exact(t, Declaration, func(ctx context.Context, scope *store.Scope, n int) error {
		name := fmt.Sprint("web", n)
		write(t, f, func(tx *store.Tx) error {
			return errors.Join(f.Provisions.In(tx).Create(many(name, 1)), f.Machines.In(tx).Create(&trivet.Machine{
				Meta:   trivet.Meta{Name: name, Labels: map[string]string{"n": name}},
				Spec:   trivet.MachineSpec{NICs: []trivet.NIC{{MAC: fmt.Sprintf("52:54:00:00:00:%02x", n)}}},
				Status: trivet.MachineStatus{State: trivet.MachineAvailable}}))
		})
		limited := f.Within(scope)
		c := New(limited, limited.Tables)
		if !slices.Contains(c.Keys(), "default/"+name) {
			return fmt.Errorf("the keys are %v", c.Keys())
		}
		if err := settle(ctx, c, "default/"+name); err != nil {
			return err
		}
		if err := f.Claim(t.Context(), "default/"+name+"-1"); err != nil {
			return err
		}
		write(t, f, func(tx *store.Tx) error { return f.Provisions.In(tx).Delete("default/" + name) })
		if err := settle(ctx, c, "default/"+name); err != nil {
			return err
		}
		m, err := f.Machines.Get(name)
		if err == nil && (m.Status.State != trivet.MachineAvailable || f.Provisions.Len() > 0) {
			err = fmt.Errorf("the machine is %+v, and there are %v", m.Status, f.Provisions.Names())
		}
		if err != nil {
			return err
		}
		return deleteWithAddress(t, ctx, f, c, n)
	})
}

// deleteWithAddress deletes a member for which the address of a machine that failed waits for the next one.
func deleteWithAddress(t *testing.T, ctx context.Context, f *fleet.Fleet, c *Controller, n int) error {
	name, address := fmt.Sprint("failed", n), fmt.Sprint("10.0.0.", n+1)
	write(t, f, func(tx *store.Tx) error {
		member := &trivet.Provision{Meta: trivet.Meta{Project: "default", Name: name + "-1", UID: name},
			Spec: trivet.ProvisionSpec{Template: "t", Selector: map[string]string{"n": "none"}},
			Status: trivet.ProvisionStatus{State: trivet.ProvisionPending, MemberOf: name, MemberOfUID: "gone",
				Spent: []trivet.SpentMachine{{FormerMachine: trivet.FormerMachine{Machine: "gone", Address: address}}}}}
		return errors.Join(f.Provisions.In(tx).Create(member), f.Addresses.In(tx).Put(&trivet.Address{
			Meta: trivet.Meta{Name: address},
			Spec: trivet.AddressSpec{Network: "lan", Provision: member.Name, ProvisionUID: name}}))
	})
	if err := settle(ctx, c, "default/"+name); err != nil {
		return err
	}
	if f.Provisions.Len()+f.Addresses.Len() > 0 {
		return fmt.Errorf("there are %v, %v", f.Provisions.Names(), f.Addresses.Names())
	}
	return nil
}

// Only a provision with a count is a key, where members are to be created or deleted. What becomes of members is none
// where it does not change that.
func TestAffected(t *testing.T) {
	f := newFleet(t)
	c := New(f, f.Tables)
	watch := f.Store.Watch(0, Declaration.Watches...)
	want := func(what string, want ...string) {
		t.Helper()
		events, err := watch.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range events {
			got = append(got, c.Affected(e)...)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s concerns %v, want %v", what, got, want)
		}
	}
	put := func(r *trivet.Provision) { write(t, f, func(tx *store.Tx) error { return f.Provisions.In(tx).Put(r) }) }
	one := many("one", 1)
	one.Spec.Count = nil
	put(one)
	want("a provision for one machine")
	web := many("web", 2)
	put(web)
	want("a new provision", "default/web")
	if err := settle(t.Context(), c, "default/web"); err != nil {
		t.Fatal(err)
	}
	want("the last of its members") // of which there is no other event
	member, err := f.Provisions.Get("default/web-1")
	if err != nil {
		t.Fatal(err)
	}
	member.Status.Reason = "no machine is free"
	put(member)
	want("why a member waits")
	write(t, f, func(tx *store.Tx) error {
		p, err := f.Provisions.In(tx).Get("default/web-2")
		if err != nil {
			return err
		}
		return errors.Join(f.Leave(tx, p), f.Provisions.In(tx).Delete("default/web-2"))
	})
	want("the deletion of a member", "default/web")
	write(t, f, func(tx *store.Tx) error { return f.Provisions.In(tx).Delete("default/web") })
	want("the deletion of the provision", "default/web")
	if got := c.Keys(); !slices.Equal(got, []string{"default/web"}) {
		t.Errorf("the keys after a start are %v", got)
	}
}
