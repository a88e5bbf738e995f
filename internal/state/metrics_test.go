package state_test

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/storetest"
)

// gauges returns the gauges of a new head that are not 0, by name and labels.
func gauges(t testing.TB, tables *state.Tables) map[string]float64 {
	t.Helper()
	reg := prometheus.NewRegistry()
	reg.MustRegister(state.NewCollector(tables))
	return gather(t, reg)
}

func gather(t testing.TB, reg *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			key := strings.TrimPrefix(f.GetName(), "trivet_")
			for _, l := range m.GetLabel() {
				key += " " + l.GetValue()
			}
			if v := m.GetGauge().GetValue(); v > 0 {
				all[key] = v
			}
		}
	}
	return all
}

func machineOf(name, product string, state trivet.MachineState) *trivet.Machine {
	return &trivet.Machine{Meta: trivet.Meta{Name: name}, Status: trivet.MachineStatus{State: state,
		Inventory: &trivet.Inventory{Vendor: "Acme", Product: product}}}
}

// Machines and provisions are counted by state, with the age of the oldest one that waits, and machines by model.
func TestMetrics(t *testing.T) {
	t.Parallel()
	now := time.Now().Add(-time.Hour)
	tables := storetest.On(t, storetest.Member(t), store.Options{Now: func() time.Time { return now }}, state.New)
	update := func(do func(tx *store.Tx) error) {
		t.Helper()
		if _, err := tables.Store.Update(t.Context(), do); err != nil {
			t.Fatal(err)
		}
	}
	provision := func(name string, s trivet.ProvisionState) *trivet.Provision {
		return &trivet.Provision{Meta: trivet.Meta{Project: "default", Name: name},
			Spec: trivet.ProvisionSpec{Template: "t", Machine: "m"}, Status: trivet.ProvisionStatus{State: s}}
	}
	update(func(tx *store.Tx) error {
		quarantined := machineOf("m6", "B", trivet.MachineQuarantined)
		quarantined.Status.Former = trivet.MachineDiscovered
		return errors.Join(
			tables.Machines.In(tx).Put(machineOf("m1", "A", trivet.MachineAvailable)),
			tables.Machines.In(tx).Put(machineOf("m2", " A\x1b\xff ", trivet.MachineActive)),
			tables.Machines.In(tx).Put(machineOf("m3", "B", trivet.MachineDiscovered)),
			tables.Machines.In(tx).Put(machineOf("m4", strings.Repeat("é", 1000), trivet.MachineActive)),
			tables.Machines.In(tx).Put(&trivet.Machine{Meta: trivet.Meta{Name: "m5"},
				Status: trivet.MachineStatus{State: trivet.MachineAvailable}}),
			tables.Machines.In(tx).Put(quarantined),
			tables.Provisions.In(tx).Put(provision("p1", "")),
			tables.Provisions.In(tx).Put(provision("p3", trivet.ProvisionSucceeded)))
	})
	now = now.Add(30 * time.Minute)
	update(func(tx *store.Tx) error {
		return tables.Provisions.In(tx).Put(provision("p2", trivet.ProvisionPending))
	})
	check := func(want map[string]float64, oldest time.Duration) {
		t.Helper()
		got := gauges(t, tables)
		age := got["provision_oldest_pending_seconds"]
		delete(got, "provision_oldest_pending_seconds")
		if !maps.Equal(got, want) {
			t.Errorf("got  %v\nwant %v", got, want)
		}
		if age < oldest.Seconds() || age > (oldest+20*time.Minute).Seconds() {
			t.Errorf("the oldest provision that waits: %v s, want %v", age, oldest.Seconds())
		}
	}
	want := map[string]float64{
		"machines available": 2, "machines active": 2, "machines discovered": 1, "machines quarantined": 1,
		"machines_by_model Acme A": 1, "machines_by_model Acme A??": 1, "machines_by_model unknown": 1,
		"machines_by_model Acme " + strings.Repeat("é", 29): 1,
		"provision_records pending":                         2, "provision_records succeeded": 1,
	}
	check(want, time.Hour)
	update(func(tx *store.Tx) error {
		return errors.Join(tables.Provisions.In(tx).Delete("default/p1"), tables.Machines.In(tx).Delete("m2"))
	})
	want["machines active"], want["provision_records pending"] = 1, 1
	delete(want, "machines_by_model Acme A??")
	check(want, 30*time.Minute)

	update(func(tx *store.Tx) error {
		paused := provision("p4", trivet.ProvisionPending)
		paused.Status.Paused = &trivet.Pause{By: "op"}
		site := &trivet.Site{Meta: trivet.Meta{Name: trivet.SiteName},
			Status: trivet.SiteStatus{ClusterVersion: trivet.CurrentRelease}}
		return errors.Join(tables.Provisions.In(tx).Delete("default/p2"), tables.Sites.In(tx).Put(site),
			tables.Provisions.In(tx).Put(paused))
	})
	want["provisions_paused pending"] = 1
	if got := gauges(t, tables); got["provision_oldest_pending_seconds"] != 0 || !maps.Equal(got, want) {
		t.Errorf("with what is paused: %v, want %v", got, want)
	}
}

// However many models there are, few have a label of their own, and none is left out of the sum.
func TestModelsAreBounded(t *testing.T) {
	t.Parallel()
	tables := storetest.New(t, state.New)
	for page := range 3 {
		if _, err := tables.Store.Update(t.Context(), func(tx *store.Tx) error {
			var errs []error
			for i := page * 40; i < page*40+40; i++ {
				product := fmt.Sprint("model-", i)
				if i >= 110 {
					product = "often"
				}
				errs = append(errs, tables.Machines.In(tx).Put(machineOf(fmt.Sprint("m", i), product,
					trivet.MachineActive)))
			}
			return errors.Join(errs...)
		}); err != nil {
			t.Fatal(err)
		}
	}
	labels, sum := 0, 0.0
	got := gauges(t, tables)
	for key, n := range got {
		if strings.HasPrefix(key, "machines_by_model ") {
			labels, sum = labels+1, sum+n
		}
	}
	if labels != 51 || sum != 120 || got["machines_by_model Acme often"] != 10 || got["machines_by_model other"] != 61 {
		t.Errorf("%d labels with %v machines: %v", labels, sum, got)
	}
}

// A machine that reports another model each time it boots does not create labels without end.
func TestModelsSinceTheStartAreBounded(t *testing.T) {
	t.Parallel()
	tables, reg := storetest.New(t, state.New), prometheus.NewRegistry()
	reg.MustRegister(state.NewCollector(tables))
	put := func(m *trivet.Machine) {
		t.Helper()
		do := func(tx *store.Tx) error { return tables.Machines.In(tx).Put(m) }
		if _, err := tables.Store.Update(t.Context(), do); err != nil {
			t.Fatal(err)
		}
	}
	put(machineOf("good", "A", trivet.MachineActive))
	labels := map[string]bool{}
	for boot := range 250 {
		put(machineOf("bad", fmt.Sprint("model-", boot), trivet.MachineActive))
		now := gather(t, reg)
		for key := range now {
			if strings.HasPrefix(key, "machines_by_model ") {
				labels[key] = true
			}
		}
		if now["machines_by_model Acme A"] != 1 {
			t.Fatalf("after %d boots of another machine: %v", boot, now)
		}
	}
	if len(labels) != 201 || !labels["machines_by_model other"] {
		t.Errorf("%d labels", len(labels))
	}
}

// A scrape of 100,000 machines, each of another model, which is the worst case.
func BenchmarkScrape(b *testing.B) {
	const machines, each = 100_000, 100
	tables := storetest.New(b, state.New)
	for from := 0; from < machines; from += each {
		if _, err := tables.Store.Update(b.Context(), func(tx *store.Tx) error {
			var errs []error
			for i := from; i < from+each; i++ {
				m := machineOf(fmt.Sprint("m", i), fmt.Sprint("model-", i), trivet.MachineActive)
				errs = append(errs, tables.Machines.In(tx).Put(m))
			}
			return errors.Join(errs...)
		}); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		if n := gauges(b, tables)["machines active"]; n != machines {
			b.Fatalf("%v machines", n)
		}
	}
}
