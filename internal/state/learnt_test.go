package state_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/cluster"
	"github.com/trivet-project/trivet/internal/learnt"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/storetest"
)

var today = time.Unix(1e9, 0)

// heads are heads on one store, each with a copy of its own.
func heads(t *testing.T, m *cluster.Member, n int) (all []*state.Learnt, tables []*state.Tables) {
	t.Helper()
	for i := range n {
		tables = append(tables, storetest.On(t, m, store.Options{}, state.New))
		all = append(all, state.NewLearnt(tables[i], fmt.Sprint("head", i)))
	}
	_, err := tables[0].Store.Update(t.Context(), func(tx *store.Tx) error {
		for i := range n {
			h := &trivet.Head{Meta: trivet.Meta{Name: fmt.Sprint("head", i)}}
			h.Status.State = trivet.HeadMember
			if err := tables[0].Heads.In(tx).Create(h); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range tables {
		if err := table.Store.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return all, tables
}

func add(l *state.Learnt, n int) {
	for range n {
		l.Add(learnt.Run{Model: "Dell", Succeeded: true,
			Steps: []learnt.Took{{Keys: []string{trivet.StepDHCP}, Time: time.Minute}}})
	}
}

func exchange(t *testing.T, all ...*state.Learnt) {
	t.Helper()
	for _, l := range all {
		if err := l.Exchange(t.Context(), today); err != nil {
			t.Fatal(err)
		}
	}
}

func expectRuns(t *testing.T, what string, l *state.Learnt, want float64) {
	t.Helper()
	got := 0.0
	if m := l.Book().Models["Dell"]; m != nil {
		got = m.Runs
	}
	if got != want {
		t.Errorf("%s %v runs are known, want %v", what, got, want)
	}
}

// Each head knows what all have saved. A head that is killed loses what it has not saved, and nothing else; one that
// starts goes on from its document. A transaction saves many runs, and none is written where nothing was learnt.
func TestHeadsLearnTogether(t *testing.T) {
	m := storetest.Member(t)
	all, tables := heads(t, m, 3)
	before := tables[0].Store.Revision()
	for i, l := range all {
		add(l, 100*(i+1))
	}
	exchange(t, all...)
	exchange(t, all...)
	for i, l := range all {
		expectRuns(t, fmt.Sprintf("at head%d", i), l, 600)
	}
	if err := tables[0].Store.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if wrote := tables[0].Store.Revision() - before; wrote != 3 {
		t.Errorf("three heads wrote %d transactions", wrote)
	}
	add(all[1], 7) // and it is killed
	again := state.NewLearnt(tables[1], "head1")
	add(again, 1)
	exchange(t, again, all[0])
	expectRuns(t, "after a kill", again, 601)
	expectRuns(t, "at another head", all[0], 601)
}

// What a head learnt that was removed stays known, once: the first of the others adds it to its own.
func TestRemovedHeadIsLearntFrom(t *testing.T) {
	m := storetest.Member(t)
	all, tables := heads(t, m, 3)
	for _, l := range all {
		add(l, 10)
	}
	exchange(t, all...)
	_, err := tables[0].Store.Update(t.Context(), func(tx *store.Tx) error {
		h, err := tables[0].Heads.In(tx).Get("head2")
		if err != nil {
			return err
		}
		h.Status.State = trivet.HeadRemoved
		return tables[0].Heads.In(tx).Put(h)
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range tables[:2] {
		if err := table.Store.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	exchange(t, all[0], all[1], all[0], all[1])
	for _, l := range all[:2] {
		expectRuns(t, "after a removal", l, 30)
	}
	documents, err := tables[0].Store.Documents(t.Context(), state.LearntDocument)
	if err != nil || len(documents) != 2 {
		t.Errorf("%d documents, %v", len(documents), err)
	}
}

// A document that cannot be read is replaced, and does not prevent others from being read.
func TestDamagedBookIsReplaced(t *testing.T) {
	m := storetest.Member(t)
	all, tables := heads(t, m, 2)
	add(all[1], 5)
	exchange(t, all[1])
	err := tables[0].Store.PutDocument(t.Context(), state.LearntDocument, "head0", store.Document{}, []byte("?"))
	if err != nil {
		t.Fatal(err)
	}
	add(all[0], 2)
	exchange(t, all[0])
	expectRuns(t, "beside a damaged document", all[0], 7)
	exchange(t, all[1])
	expectRuns(t, "after it was replaced", all[1], 7)
}

func TestLearntMetrics(t *testing.T) {
	m := storetest.Member(t)
	all, _ := heads(t, m, 1)
	add(all[0], 10)
	for range 5 {
		all[0].Add(learnt.Run{Model: "Bad", Failure: trivet.FaultMachine})
	}
	exchange(t, all[0])
	reg := prometheus.NewRegistry()
	reg.MustRegister(all[0])
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			key := f.GetName()
			for _, l := range m.GetLabel() {
				key += " " + l.GetValue()
			}
			got[key] = m.GetGauge().GetValue()
		}
	}
	for key, want := range map[string]float64{"trivet_models_avoided": 1,
		"trivet_step_expected_seconds Dell 0.5 dhcp": 64, "trivet_step_expected_seconds all 0.999 dhcp": 64} {
		if got[key] != want {
			t.Errorf("%s is %v, want %v; all: %v", key, got[key], want, got)
		}
	}
	if len(got) != 7 {
		t.Errorf("%d series: %v", len(got), got)
	}
}
