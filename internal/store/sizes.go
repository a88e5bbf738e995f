package store

import "github.com/prometheus/client_golang/prometheus"

// sizes are the number and size of the records in the local copy, by kind. They are counted with each change, so that
// reading them does not read the copy.
type sizes struct {
	records *prometheus.GaugeVec
	bytes   *prometheus.GaugeVec
}

func newSizes() sizes {
	return sizes{
		records: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "trivet_store_records",
			Help: "Records in this head's copy, by kind.",
		}, []string{"kind"}),
		bytes: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "trivet_store_record_bytes",
			Help: "Size of the records in this head's copy as JSON, by kind. In memory they take several times as much.",
		}, []string{"kind"}),
	}
}

// replace counts that an entry takes the place of another one; either may be nil.
func (s sizes) replace(old, e *entry) {
	s.add(old, -1)
	s.add(e, 1)
}

func (s sizes) add(e *entry, sign float64) {
	if e == nil || e.info == nil {
		return
	}
	kind := string(e.info.kind)
	s.records.WithLabelValues(kind).Add(sign)
	s.bytes.WithLabelValues(kind).Add(sign * float64(e.size()))
}

// reset forgets all records: the copy is loaded.
func (s sizes) reset() {
	s.records.Reset()
	s.bytes.Reset()
}
