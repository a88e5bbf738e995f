package store

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// sizes are the number and size of the records in the local copy, by kind. They are counted with each change, so that
// reading them does not read the copy.
type sizes struct {
	records *prometheus.GaugeVec
	bytes   *prometheus.GaugeVec
	kinds   *sync.Map // by kind: kindSizes
}

func newSizes() sizes {
	return sizes{
		kinds: &sync.Map{},
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

// kindSizes are the sizes of one kind.
type kindSizes struct{ records, bytes prometheus.Gauge }

func (s sizes) of(kind string) kindSizes {
	if k, ok := s.kinds.Load(kind); ok {
		return k.(kindSizes)
	}
	k := kindSizes{s.records.WithLabelValues(kind), s.bytes.WithLabelValues(kind)}
	s.kinds.Store(kind, k)
	return k
}

// replace counts that an entry takes the place of another one of its key; either may be nil.
func (s sizes) replace(old, e *entry) {
	if old != nil && e != nil && e.info != nil {
		s.of(string(e.info.kind)).bytes.Add(float64(e.size() - old.size()))
		return
	}
	s.add(old, -1)
	s.add(e, 1)
}

func (s sizes) add(e *entry, sign float64) {
	if e == nil || e.info == nil {
		return
	}
	k := s.of(string(e.info.kind))
	k.records.Add(sign)
	k.bytes.Add(sign * float64(e.size()))
}

// reset forgets all records: the copy is loaded.
func (s sizes) reset() {
	s.kinds.Clear()
	s.records.Reset()
	s.bytes.Reset()
}
