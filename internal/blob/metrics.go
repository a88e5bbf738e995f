package blob

import (
	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are the metrics of pulls.
type Metrics struct {
	bytes prometheus.Counter
	pulls *prometheus.CounterVec // by result
}

// NewMetrics creates and registers the metrics; nil registers them nowhere.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		bytes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "trivet_blob_pulled_bytes_total", Help: "Verified bytes of blobs pulled from other heads.",
		}),
		pulls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "trivet_blob_pulls_total", Help: "Completed pulls of blobs from other heads, by result.",
		}, []string{"result"}),
	}
	if reg != nil {
		reg.MustRegister(m.bytes, m.pulls)
	}
	return m
}

func (m *Metrics) ended(err error) {
	result := "ok"
	if err != nil {
		result = "failed"
	}
	m.pulls.WithLabelValues(result).Inc()
}
