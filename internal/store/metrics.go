package store

import (
	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	updates  *prometheus.HistogramVec // seconds, by result
	lag      prometheus.Histogram
	reruns   prometheus.Counter
	unknowns prometheus.Counter
	waiting  prometheus.Gauge
	reloads  prometheus.Counter
	refusals prometheus.Counter
	refused  prometheus.Gauge
	reseals  prometheus.Counter
	sealed   *prometheus.GaugeVec // values, by key
	revision prometheus.Gauge
	sizes    sizes
}

func newMetrics(to prometheus.Registerer) *metrics {
	m := &metrics{
		updates: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "trivet_store_update_duration_seconds",
			Help:    "Duration of transactions, including reruns, by result.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 15),
		}, []string{"result"}),
		lag: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "trivet_store_copy_lag_seconds",
			Help:    "Time from the response to a commit until the local copy has it.",
			Buckets: prometheus.ExponentialBuckets(0.00005, 2, 18),
		}),
		reruns: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "trivet_store_conflicts_total",
			Help: "Transactions rerun because a record that they read was changed.",
		}),
		unknowns: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "trivet_store_unknown_outcomes_total",
			Help: "Commit attempts without a response, whose outcome had to be resolved.",
		}),
		waiting: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "trivet_store_waiting_transactions",
			Help: "Transactions that wait to begin, as many others are in progress.",
		}),
		reloads: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "trivet_store_reloads_total",
			Help: "Reloads of the local copy because the watch could not be resumed.",
		}),
	}
	m.refusals = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "trivet_store_refusals_total",
		Help: "Values that did not authenticate when this head read them: forged, replayed or damaged.",
	})
	m.refused = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "trivet_store_refused_values",
		Help: "Values in this head's copy that do not authenticate.",
	})
	m.reseals = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "trivet_store_reseals_total",
		Help: "Values that this head encrypted again with the active key, since the key was rotated.",
	})
	m.sealed = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "trivet_store_values",
		Help: "Values in this head's copy of the store, by the ID of the key that they are encrypted with.",
	}, []string{"key"})
	m.revision = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "trivet_store_copy_revision",
		Help: "Revision of this head's copy, which is behind its member by trivet_store_revision minus this.",
	})
	m.sizes = newSizes()
	if to != nil {
		to.MustRegister(m.updates, m.lag, m.reruns, m.unknowns, m.waiting, m.reloads, m.refusals, m.refused, m.reseals, m.sealed,
			m.revision, m.sizes.records, m.sizes.bytes)
	}
	return m
}
