package state_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/placement"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/storetest"
)

// someLabels returns labels of which some are prefixes of others.
func someLabels(most int) map[string]string {
	labels := map[string]string{}
	for range 1 + rand.IntN(most) {
		labels[[]string{"a", "aa", "b", "rack"}[rand.IntN(4)]] = []string{"1", "11", "2"}[rand.IntN(3)]
	}
	return labels
}

// Machines and provisions find each other as by a scan of all of them.
func TestWaitingAsByScan(t *testing.T) {
	now := time.Now()
	tables := storetest.On(t, storetest.Member(t), store.Options{Now: func() time.Time { return now }}, state.New)
	put := func(r trivet.Record) {
		t.Helper()
		if _, err := tables.Store.Update(t.Context(), func(tx *store.Tx) error { return tx.PutRecord(r) }); err != nil {
			t.Fatal(err)
		}
	}
	states := []trivet.MachineState{trivet.MachineAvailable, trivet.MachineAvailable, trivet.MachineActive}
	for i := range 60 {
		put(&trivet.Machine{Meta: trivet.Meta{Name: fmt.Sprint("m", i), Labels: someLabels(4)},
			Spec:   trivet.MachineSpec{NICs: []trivet.NIC{{MAC: fmt.Sprintf("52:54:00:00:00:%02x", i)}}},
			Status: trivet.MachineStatus{State: states[i%len(states)]}})
	}
	for i := range 60 {
		if i%7 != 0 { // some are of the same time
			now = now.Add(time.Duration(rand.IntN(5)-2) * time.Minute)
		}
		p := &trivet.Provision{Meta: trivet.Meta{Project: "default", Name: fmt.Sprint("p", rand.IntN(1_000_000))},
			Spec: trivet.ProvisionSpec{Template: "t", Selector: someLabels(3)}}
		switch i % 10 {
		case 7:
			p.Spec.Machine = fmt.Sprint("m", i)
		case 8:
			p.Status.WaitsFor = "image os"
		case 9:
			p.Status.State = trivet.ProvisionRunning
		}
		put(p)
	}
	for p := range tables.Provisions.AllShared() {
		checkMachines(t, tables, p.Spec.Selector)
	}
	for m := range tables.Machines.AllShared() {
		checkWaiting(t, tables, m)
	}
}

func checkMachines(t *testing.T, tables *state.Tables, selector map[string]string) {
	t.Helper()
	wantFree, wantTaken := []string{}, []string{}
	for m := range tables.Machines.AllShared() {
		if !placement.Matches(m, &trivet.ProvisionSpec{Selector: selector}) {
			continue
		}
		if placement.Free(m) {
			wantFree = append(wantFree, m.Name)
		} else {
			wantTaken = append(wantTaken, m.Name)
		}
	}
	free, taken := []string{}, []string{}
	for m := range tables.FreeMachines(selector, &state.Search{Left: 100}) {
		free = append(free, m.Name)
	}
	for m := range tables.TakenMachines(selector, &state.Search{Left: 100}) {
		taken = append(taken, m.Name)
	}
	if !slices.Equal(free, wantFree) || !slices.Equal(taken, wantTaken) {
		t.Errorf("%v: free are %v, want %v; taken are %v, want %v", selector, free, wantFree, taken, wantTaken)
	}
}

func checkWaiting(t *testing.T, tables *state.Tables, m *trivet.Machine) {
	t.Helper()
	var want, got []string
	waiting := slices.Collect(tables.Provisions.AllShared()) // by name
	slices.SortStableFunc(waiting, func(a, b *trivet.Provision) int { return a.Created.Compare(b.Created) })
	for _, p := range waiting {
		if p.Status.State.Waits() && p.Status.WaitsFor == "" && placement.Matches(m, &p.Spec) {
			want = append(want, p.Name)
		}
	}
	for p := range tables.WaitingFor(m) {
		got = append(got, p.Name)
	}
	if !slices.Equal(got, want) {
		t.Errorf("for %s wait %v, want %v", m.Name, got, want)
	}
}

// All that wait are found from any place on.
func TestWaitingInPages(t *testing.T) {
	tables := storetest.New(t, state.New)
	want := map[string]bool{}
	for i := range 20 {
		p := &trivet.Provision{Meta: trivet.Meta{Project: "default", Name: fmt.Sprint("p", i)},
			Spec: trivet.ProvisionSpec{Template: "t", Selector: someLabels(3)}}
		if i%5 == 0 {
			p.Status.WaitsFor = "image os"
		}
		if _, err := tables.Store.Update(t.Context(), func(tx *store.Tx) error { return tx.PutRecord(p) }); err != nil {
			t.Fatal(err)
		}
		want[p.Name] = true
	}
	got := map[string]bool{}
	var last *trivet.Provision
	for next := true; next; {
		next = false
		for p := range tables.Waiting(last) {
			if got[p.Name] {
				t.Fatalf("%s is found twice", p.Name)
			}
			got[p.Name], last, next = true, p, true
			break
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("found %v, want %v", got, want)
	}
	blocked := 0
	for range tables.WaitingForFault("image os") {
		blocked++
	}
	if blocked != 4 {
		t.Errorf("%d wait for the image, want 4", blocked)
	}
}

// A search that is bounded reads no more machines than it may: one, where the first one has the labels, and as many as
// it may where labels are of different machines. What follows is found by the next one.
func TestSearchIsBounded(t *testing.T) {
	tables := storetest.New(t, state.New)
	const n = 100
	if _, err := tables.Store.Update(t.Context(), func(tx *store.Tx) error {
		for i := range n {
			m := &trivet.Machine{
				Meta:   trivet.Meta{Name: fmt.Sprintf("m%03d", i), Labels: map[string]string{"all": "yes"}},
				Spec:   trivet.MachineSpec{NICs: []trivet.NIC{{MAC: fmt.Sprintf("52:54:00:00:00:%02x", i)}}},
				Status: trivet.MachineStatus{State: trivet.MachineAvailable}}
			m.Labels[[]string{"even", "odd"}[i%2]] = "yes"
			if i == n-1 {
				m.Labels["even"] = "yes"
			}
			if err := tables.Machines.In(tx).Create(m); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	s := &state.Search{Left: 50}
	for m := range tables.FreeMachines(map[string]string{"all": "yes"}, s) {
		if m.Name != "m000" || s.Left != 50 {
			t.Errorf("%s was found, after %d others", m.Name, 50-s.Left)
		}
		break
	}
	read := 0
	for s = (&state.Search{}); s.After != fmt.Sprintf("m%03d", n-1); read += 50 {
		if s.Left = 50; read > 2*n {
			t.Fatalf("after %d machines it is at %s", read, s.After)
		}
		for m := range tables.FreeMachines(map[string]string{"even": "yes", "odd": "yes"}, s) {
			if m.Name != fmt.Sprintf("m%03d", n-1) {
				t.Errorf("%s was found, with the labels %v", m.Name, m.Labels)
			}
		}
	}
	if read <= 50 {
		t.Errorf("%d machines were read; the last one was found before the others were read", read)
	}
}
