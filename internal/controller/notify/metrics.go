package notify

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/state"
)

var (
	pendingEvents = prometheus.NewDesc("trivet_notifier_pending_events",
		"Events of a notifier that wait for delivery, by its record: each head has the same value.",
		[]string{"notifier"}, nil)
	failures = prometheus.NewDesc("trivet_notifier_failures",
		"Attempts of a notifier to deliver that failed since its last success, by its record.",
		[]string{"notifier"}, nil)
	disabled = prometheus.NewDesc("trivet_notifier_disabled",
		"1 where the receiver of a notifier wants no more events, by its record.", []string{"notifier"}, nil)
	delivered = prometheus.NewDesc("trivet_notifier_delivered_events_total",
		"Events that the receiver of a notifier acknowledged, by its record.", []string{"notifier"}, nil)
	dropped = prometheus.NewDesc("trivet_notifier_dropped_events_total",
		"Events that a notifier will not deliver, by its record.", []string{"notifier"}, nil)
)

// collector collects what the records of the notifiers have.
type collector struct{ tables *state.Tables }

func (c collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{pendingEvents, failures, disabled, delivered, dropped} {
		to <- d
	}
}

func (c collector) Collect(to chan<- prometheus.Metric) {
	for n := range c.tables.Notifiers.AllShared() {
		st := &n.Status
		off := 0.0
		if st.State == trivet.NotifierDisabled {
			off = 1
		}
		to <- prometheus.MustNewConstMetric(pendingEvents, prometheus.GaugeValue, float64(len(st.Pending)), n.Name)
		to <- prometheus.MustNewConstMetric(failures, prometheus.GaugeValue, float64(st.Failures), n.Name)
		to <- prometheus.MustNewConstMetric(disabled, prometheus.GaugeValue, off, n.Name)
		to <- prometheus.MustNewConstMetric(delivered, prometheus.CounterValue, float64(st.Delivered), n.Name)
		to <- prometheus.MustNewConstMetric(dropped, prometheus.CounterValue, float64(st.Dropped), n.Name)
	}
}
