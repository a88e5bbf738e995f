package store_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/storetest"
)

// value returns the value of a gauge of machines, or 0.
func value(t *testing.T, from *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := from.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	return 0
}

// The number and size of the records of a kind are counted with each change, and again when a copy is loaded.
func TestSizesOfRecords(t *testing.T) {
	t.Parallel()
	m, written, loaded := storetest.Member(t), prometheus.NewRegistry(), prometheus.NewRegistry()
	h := open(t, m.Client(), store.Options{Metrics: written})
	h.put(t, "m1", "r1")
	h.put(t, "m2", "r1")
	h.put(t, "m3", "r1")
	before := value(t, written, "trivet_store_record_bytes")
	h.put(t, "m1", "a-longer-name")
	h.must(t, func(tx *store.Tx) error { return h.machines.In(tx).Delete("m3") })
	h.synced(t)
	if n := value(t, written, "trivet_store_records"); n != 2 {
		t.Errorf("%v records", n)
	}
	after := value(t, written, "trivet_store_record_bytes")
	if after <= before/3*2 || after >= before {
		t.Errorf("%v bytes of three records, %v of two", before, after)
	}
	open(t, m.Client(), store.Options{Metrics: loaded})
	for _, name := range []string{"trivet_store_records", "trivet_store_record_bytes", "trivet_store_copy_revision"} {
		if was, is := value(t, written, name), value(t, loaded, name); was != is || is == 0 {
			t.Errorf("%s: %v in the copy that was changed, %v in the one that was loaded", name, was, is)
		}
	}
}
