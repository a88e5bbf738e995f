package addressing

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	declined prometheus.Counter
	dropped  prometheus.Counter
}

// newMetrics registers them with r, if it is not nil.
func newMetrics(r prometheus.Registerer) *metrics {
	opts := func(name, help string) prometheus.CounterOpts {
		return prometheus.CounterOpts{Name: "trivet_addressing_" + name, Help: help}
	}
	m := &metrics{
		declined: prometheus.NewCounter(opts("declined_total",
			"Addresses that a client declined because another host uses them.")),
		dropped: prometheus.NewCounter(opts("dropped_writes_total",
			"Deferred writes of address records that failed or did not fit the queue.")),
	}
	if r != nil {
		r.MustRegister(m.declined, m.dropped)
	}
	return m
}
