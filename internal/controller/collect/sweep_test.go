package collect

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/storetest"
)

// A sweep decides on what its transaction compares: what changed since the head's copy was read is not deleted.
func TestSweepsDecideInTheTransaction(t *testing.T) {
	t.Parallel()
	m := storetest.Member(t)
	near := storetest.On(t, m, store.Options{Head: "head0"}, state.New)
	far := storetest.On(t, m, store.Options{Head: "head1"}, state.New)
	old := time.Now().Add(-30 * 24 * time.Hour)
	write := func(tables *state.Tables, do func(tx *store.Tx) error) {
		t.Helper()
		if _, err := tables.Store.Update(t.Context(), do); err != nil {
			t.Fatal(err)
		}
	}
	run := func(state trivet.WorkflowState) *trivet.Workflow {
		return &trivet.Workflow{Meta: trivet.Meta{Project: "default", Name: "p-1"},
			Spec:   trivet.WorkflowSpec{Machine: "m1", Provision: "p"},
			Status: trivet.WorkflowStatus{State: state, Ended: old}}
	}
	write(near, func(tx *store.Tx) error { return near.Workflows.In(tx).Put(run(trivet.WorkflowFailed)) })

	// another head starts a run of that name after this head's copy was read
	reused := false
	c := New(Config{Tables: near})
	err := c.delete(t.Context(), "Workflow", "default/p-1", func(tx *store.Tx) (bool, error) {
		w, err := near.Workflows.In(tx).Get("default/p-1")
		if err != nil {
			return false, err
		}
		if !reused {
			reused = true
			write(far, func(tx *store.Tx) error { return far.Workflows.In(tx).Put(run(trivet.WorkflowRunning)) })
		}
		return w.Status.State.Ended(), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if w, err := near.Workflows.Get("default/p-1"); err != nil || w.Status.State != trivet.WorkflowRunning {
		t.Errorf("the run was deleted: %+v, %v", w, err)
	}
}

// A record that exists only with another one is deleted after it, and not while that exists.
func TestOrphansAreDeleted(t *testing.T) {
	t.Parallel()
	tables := storetest.New(t, state.New)
	_, err := tables.Store.Update(t.Context(), func(tx *store.Tx) error {
		return errors.Join(
			tables.Accounts.In(tx).Put(&trivet.Account{Meta: trivet.Meta{Name: "alice"},
				Spec: trivet.AccountSpec{Role: trivet.AccountViewer}}),
			tables.Tokens.In(tx).Put(&trivet.Token{Meta: trivet.Meta{Name: "valid"},
				Spec: trivet.TokenSpec{Account: "alice", Hash: "x"}}),
			tables.Tokens.In(tx).Put(&trivet.Token{Meta: trivet.Meta{Name: "old"},
				Spec: trivet.TokenSpec{Account: "alice", AccountUID: "an earlier one", Hash: "x"}}),
			tables.Tokens.In(tx).Put(&trivet.Token{Meta: trivet.Meta{Name: "join"},
				Spec: trivet.TokenSpec{Join: trivet.RoleVoter, Hash: "x"}}),
		)
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := New(Config{Tables: tables, Expired: neverExpires}).sweep(t.Context(), keyOrphans, time.Now()); err != nil {
		t.Fatal(err)
	}
	if names := tables.Tokens.Names(); len(names) != 2 || names[0] != "join" || names[1] != "valid" {
		t.Errorf("left: %v", names)
	}
}

// A member whose provision is gone is left to the controller of members, which releases its machine. What else exists
// only with a deleted record is deleted nevertheless.
func TestOrphansThatHoldMachinesStay(t *testing.T) {
	t.Parallel()
	tables := storetest.New(t, state.New)
	_, err := tables.Store.Update(t.Context(), func(tx *store.Tx) error {
		return errors.Join(
			tables.Sites.In(tx).Put(&trivet.Site{Meta: trivet.Meta{Name: trivet.SiteName},
				Status: trivet.SiteStatus{ClusterVersion: trivet.CurrentRelease}}),
			tables.Provisions.In(tx).Put(&trivet.Provision{Meta: trivet.Meta{Project: "default", Name: "web-1"},
				Spec:   trivet.ProvisionSpec{Template: "t", Machine: "m1"},
				Status: trivet.ProvisionStatus{MemberOf: "web", MemberOfUID: "gone"}}),
			tables.Tokens.In(tx).Put(&trivet.Token{Meta: trivet.Meta{Name: "old"},
				Spec: trivet.TokenSpec{Account: "alice", AccountUID: "gone", Hash: "x"}}),
		)
	})
	if err != nil {
		t.Fatal(err)
	}
	c := New(Config{Tables: tables.Within(Declaration.Scope()), Expired: neverExpires})
	if err := c.sweep(store.WithScope(t.Context(), Declaration.Scope()), keyOrphans, time.Now()); err != nil {
		t.Error(err)
	}
	if p, tokens := tables.Provisions.Len(), tables.Tokens.Len(); p != 1 || tokens != 0 {
		t.Errorf("%d provisions and %d tokens are left", p, tokens)
	}
}

// The address of a port that was removed while it was assigned is deleted.
func TestAddressesOfRemovedPorts(t *testing.T) {
	t.Parallel()
	const has, had = "52:54:00:00:00:01", "52:54:00:00:00:02"
	tables := storetest.New(t, state.New)
	address := func(name, mac string) *trivet.Address {
		return &trivet.Address{Meta: trivet.Meta{Name: name},
			Spec: trivet.AddressSpec{Network: "lan", MAC: mac, Machine: "m1", Fixed: true}}
	}
	_, err := tables.Store.Update(t.Context(), func(tx *store.Tx) error {
		return errors.Join(
			tables.Machines.In(tx).Put(&trivet.Machine{Meta: trivet.Meta{Name: "m1"},
				Spec: trivet.MachineSpec{NICs: []trivet.NIC{{MAC: has}}}}),
			tables.Addresses.In(tx).Put(address("10.0.0.1", has)),
			tables.Addresses.In(tx).Put(address("10.0.0.2", had)),
		)
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := New(Config{Tables: tables, Expired: neverExpires}).sweep(t.Context(), keyLeases, time.Now()); err != nil {
		t.Fatal(err)
	}
	if names := tables.Addresses.Names(); len(names) != 1 || names[0] != "10.0.0.1" {
		t.Errorf("left: %v", names)
	}
}

// A sweep reads slice by slice, also where records of a slice are deleted meanwhile.
func TestSweepsInPages(t *testing.T) {
	t.Parallel()
	tables, now := storetest.New(t, state.New), time.Now()
	old, next := now.Add(-2*keepToken), now.Add(time.Hour)
	const all, batch = 2*slice + 1, 91
	for i := 0; i < all; i += batch {
		_, err := tables.Store.Update(t.Context(), func(tx *store.Tx) error {
			for j := i; j < i+batch; j++ {
				token := &trivet.Token{Meta: trivet.Meta{Name: fmt.Sprintf("t%04d", j)},
					Spec: trivet.TokenSpec{Join: trivet.RoleVoter, Hash: "x", Expires: next}}
				if j%slice == 0 || j%slice == slice-1 {
					token.Spec.Expires = old
				}
				if err := tables.Tokens.In(tx).Create(token); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := whole(t.Context(), New(Config{Tables: tables, Expired: neverExpires}), keyTokens, now); err != nil {
		t.Fatal(err)
	}
	left := 0
	for token := range tables.Tokens.AllShared() {
		if left++; token.Spec.Expires.Equal(old) {
			t.Errorf("%s is left", token.Name)
		}
	}
	if left != all-5 {
		t.Errorf("%d are left of %d, want all but 5", left, all)
	}
}

// A sweep of records that belong to projects reads each once, and ends, whatever their names.
func TestSweepOfProjects(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"a", "x"} { // before and after the names of projects
		tables, now := storetest.New(t, state.New), time.Now()
		run := func(project, name string, ended time.Time) *trivet.Workflow {
			return &trivet.Workflow{Meta: trivet.Meta{Project: project, Name: name},
				Spec:   trivet.WorkflowSpec{Machine: "m1", Provision: "gone", ProvisionUID: "u"},
				Status: trivet.WorkflowStatus{State: trivet.WorkflowFailed, Ended: ended}}
		}
		const batch = 100
		for i := 0; i < slice; i += batch {
			_, err := tables.Store.Update(t.Context(), func(tx *store.Tx) (err error) {
				for j := range batch {
					err = errors.Join(err, tables.Workflows.In(tx).Create(run("blue", fmt.Sprintf("%s-%04d", name, i+j), now)))
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		_, err := tables.Store.Update(t.Context(), func(tx *store.Tx) error {
			return tables.Workflows.In(tx).Create(run("default", "old-1", now.Add(-2*keepRun)))
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		err = whole(ctx, New(Config{Tables: tables, Expired: neverExpires}), keyRuns, now)
		cancel()
		if n := tables.Workflows.Len(); err != nil || n != slice {
			t.Errorf("runs named %s: %d are left, want %d; %v", name, n, slice, err)
		}
	}
}

func neverExpires(*trivet.Address) bool { return false }
