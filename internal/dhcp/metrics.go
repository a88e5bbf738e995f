package dhcp

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// Why a packet got no answer.
const (
	dropMalformed = "malformed"
	dropSilent    = "silent" // the Handler chose so
	dropReply     = "reply"  // the Handler's reply was wrong
	dropSend      = "send"
)

// Metrics counts what a Server does.
type Metrics struct {
	all      []prometheus.Collector
	received map[Type]prometheus.Counter
	answers  map[answer]prometheus.Counter
	dropped  *prometheus.CounterVec
	missed   prometheus.Counter
	left     prometheus.Counter
	took     prometheus.Histogram
}

// NewMetrics makes them and registers them with r.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := newMetrics()
	r.MustRegister(m.all...)
	return m
}

type answer struct {
	Type
	way
}

func newMetrics() *Metrics {
	counter := func(name, help string) prometheus.CounterOpts {
		return prometheus.CounterOpts{Name: "trivet_dhcp_" + name, Help: help}
	}
	received := prometheus.NewCounterVec(counter("received_packets_total", "Valid packets by type."), []string{"type"})
	answers := prometheus.NewCounterVec(counter("answers_total", "Answers by type and by way to the client."),
		[]string{"type", "way"})
	m := &Metrics{
		received: make(map[Type]prometheus.Counter),
		answers:  make(map[answer]prometheus.Counter),
		dropped: prometheus.NewCounterVec(counter("dropped_packets_total", "Packets without an answer, by reason."),
			[]string{"reason"}),
		missed: prometheus.NewCounter(counter("missed_packets_total", "Packets that the kernel dropped: the queue was full.")),
		left: prometheus.NewCounter(counter("left_out_options_total",
			"Options that did not fit the room a client has.")),
		took: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "trivet_dhcp_answer_seconds",
			Help: "From a packet's receipt to its answer's sending.", Buckets: prometheus.ExponentialBuckets(20e-6, 4, 10)}),
	}
	for _, t := range []Type{Discover, Request, Decline, Release, Inform} {
		m.received[t] = received.WithLabelValues(strings.ToLower(t.String()))
	}
	for _, t := range []Type{Offer, Ack, Nak} {
		for _, w := range []way{toRelay, toUnicast, toFrame, toAll} {
			m.answers[answer{t, w}] = answers.WithLabelValues(strings.ToLower(t.String()), string(w))
		}
	}
	m.all = []prometheus.Collector{received, answers, m.dropped, m.missed, m.left, m.took}
	return m
}

func (m *Metrics) drop(reason string) { m.dropped.WithLabelValues(reason).Inc() }

func (m *Metrics) sent(t Type, w way) { m.answers[answer{t, w}].Inc() }
