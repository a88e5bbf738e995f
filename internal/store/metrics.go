package store

import (
	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	updates  *prometheus.HistogramVec // seconds, by result
	lag      prometheus.Histogram
	reruns   prometheus.Counter
	unknowns prometheus.Counter
	reloads  prometheus.Counter
}

func newMetrics(to prometheus.Registerer) *metrics {
	m := &metrics{
		updates: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "trivet_store_update_seconds", Help: "How long transactions took, with all their tries.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 15),
		}, []string{"result"}),
		lag: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "trivet_store_lag_seconds", Help: "How long after a commit's answer the local copy had it.",
			Buckets: prometheus.ExponentialBuckets(0.00005, 2, 18),
		}),
		reruns: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "trivet_store_conflicts_total", Help: "Transactions run again because what they had read was changed.",
		}),
		unknowns: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "trivet_store_unknown_total", Help: "Tries that were not answered, so that their outcome had to be learned.",
		}),
		reloads: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "trivet_store_reloads_total", Help: "Times the local copy was listed anew because the watch could not go on.",
		}),
	}
	if to != nil {
		to.MustRegister(m.updates, m.lag, m.reruns, m.unknowns, m.reloads)
	}
	return m
}
