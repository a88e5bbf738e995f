package dhcp

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// Reasons why a packet was not answered.
const (
	dropMalformed = "malformed"
	dropSilent    = "silent" // the Handler returned no reply
	dropReply     = "reply"  // the Handler's reply was not valid
	dropSend      = "send"
	dropBusy      = "busy" // its Handler had to wait, and too many did; it is also counted as silent
)

// Metrics are the metrics of a Server.
type Metrics struct {
	all      []prometheus.Collector
	received map[Type]prometheus.Counter
	answers  map[answer]prometheus.Counter
	dropped  *prometheus.CounterVec
	missed   prometheus.Counter
	left     prometheus.Counter
	duration prometheus.Histogram
}

// NewMetrics returns metrics that are registered with r.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := newMetrics()
	r.MustRegister(m.all...)
	return m
}

type answer struct {
	Type
	path
}

func newMetrics() *Metrics {
	counter := func(name, help string) prometheus.CounterOpts {
		return prometheus.CounterOpts{Name: "trivet_dhcp_" + name, Help: help}
	}
	received := prometheus.NewCounterVec(counter("received_packets_total",
		"Valid DHCP packets received, by message type."), []string{"type"})
	answers := prometheus.NewCounterVec(counter("replies_total",
		"DHCP replies sent, by message type and path to the client."),
		[]string{"type", "path"})
	m := &Metrics{
		received: make(map[Type]prometheus.Counter),
		answers:  make(map[answer]prometheus.Counter),
		dropped: prometheus.NewCounterVec(counter("dropped_packets_total",
			"DHCP packets that were not answered, by reason."),
			[]string{"reason"}),
		missed: prometheus.NewCounter(counter("receive_overflows_total",
			"DHCP packets that the kernel dropped because the receive buffer was full.")),
		left: prometheus.NewCounter(counter("omitted_options_total",
			"DHCP options that exceeded the maximum message size of a client.")),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "trivet_dhcp_reply_duration_seconds",
			Help:    "Time from the receipt of a DHCP packet to the sending of its reply.",
			Buckets: prometheus.ExponentialBuckets(20e-6, 4, 10)}),
	}
	for _, t := range []Type{Discover, Request, Decline, Release, Inform} {
		m.received[t] = received.WithLabelValues(strings.ToLower(t.String()))
	}
	for _, t := range []Type{Offer, Ack, Nak} {
		for _, w := range []path{toRelay, toUnicast, toFrame, toAll} {
			m.answers[answer{t, w}] = answers.WithLabelValues(strings.ToLower(t.String()), string(w))
		}
	}
	m.all = []prometheus.Collector{received, answers, m.dropped, m.missed, m.left, m.duration}
	return m
}

func (m *Metrics) drop(reason string) { m.dropped.WithLabelValues(reason).Inc() }

func (m *Metrics) sent(t Type, w path) { m.answers[answer{t, w}].Inc() }
