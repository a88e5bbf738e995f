package blob

import (
	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are what is counted of pulls.
type Metrics struct {
	bytes prometheus.Counter
	pulls *prometheus.CounterVec // by result
}

// NewMetrics makes and registers them; nil registers them nowhere.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		bytes: prometheus.NewCounter(prometheus.CounterOpts{Name: "trivet_blob_pulled_bytes_total", Help: "Bytes of blobs that came from other heads and were good."}),
		pulls: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "trivet_blob_pulls_total", Help: "Pulls of blobs from other heads that ended, by result."}, []string{"result"}),
	}
	if reg != nil {
		reg.MustRegister(m.bytes, m.pulls)
	}
	return m
}

func (m *Metrics) ended(err error) {
	result := "done"
	if err != nil {
		result = "failed"
	}
	m.pulls.WithLabelValues(result).Inc()
}
