package tftp

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/trivet-project/trivet"
)

// Metrics are the metrics of a Server.
type Metrics struct {
	transfers *prometheus.CounterVec
	running   prometheus.Gauge
	bytes     prometheus.Counter
	resent    prometheus.Counter
	dropped   *prometheus.CounterVec
}

// NewMetrics returns metrics that are registered with r.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		transfers: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "trivet_tftp_transfers_total",
			Help: "TFTP transfers that ended, by result."}, []string{"result"}),
		running: prometheus.NewGauge(prometheus.GaugeOpts{Name: "trivet_tftp_active_transfers",
			Help: "TFTP transfers in progress."}),
		bytes: prometheus.NewCounter(prometheus.CounterOpts{Name: "trivet_tftp_acknowledged_bytes_total",
			Help: "File bytes that clients acknowledged."}),
		resent: prometheus.NewCounter(prometheus.CounterOpts{Name: "trivet_tftp_retransmitted_packets_total",
			Help: "TFTP packets sent again."}),
		dropped: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "trivet_tftp_dropped_packets_total",
			Help: "Packets to the TFTP port that were dropped, by reason."}, []string{"reason"}),
	}
	r.MustRegister(m.transfers, m.running, m.bytes, m.resent, m.dropped)
	return m
}

func (m *Metrics) drop(reason string) {
	if m != nil {
		m.dropped.WithLabelValues(reason).Inc()
	}
}

func (m *Metrics) begin() {
	if m != nil {
		m.running.Inc()
	}
}

func (m *Metrics) end(r Result) {
	if m == nil {
		return
	}
	m.running.Dec()
	m.transfers.WithLabelValues(outcome(r.Err)).Inc()
	m.bytes.Add(float64(r.Acked))
	m.resent.Add(float64(r.Resent))
}

// outcome returns the result label of a transfer.
func outcome(err error) string {
	var peer *PeerError
	switch code, _ := failure(err); {
	case err == nil:
		return "done"
	case errors.As(err, &peer):
		return "ended_by_client" // firmware does so when it only asked for the size
	case errors.Is(err, trivet.ErrInvalid), code == CodeAccess:
		return "refused"
	case errors.Is(err, errReplaced):
		return "replaced"
	case code == CodeNotFound:
		return "not_found"
	case errors.Is(err, errTimeout):
		return "timeout"
	default:
		return "failed"
	}
}
