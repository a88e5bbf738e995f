package tftp

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/trivet-project/trivet"
)

// Metrics counts what a Server does.
type Metrics struct {
	transfers *prometheus.CounterVec
	running   prometheus.Gauge
	bytes     prometheus.Counter
	resent    prometheus.Counter
	dropped   *prometheus.CounterVec
}

// NewMetrics makes them and registers them with r.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		transfers: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "trivet_tftp_transfers_total",
			Help: "TFTP requests by how they ended."}, []string{"result"}),
		running: prometheus.NewGauge(prometheus.GaugeOpts{Name: "trivet_tftp_transfers_running",
			Help: "TFTP transfers under way."}),
		bytes: prometheus.NewCounter(prometheus.CounterOpts{Name: "trivet_tftp_acknowledged_bytes_total",
			Help: "Bytes of files that peers acknowledged."}),
		resent: prometheus.NewCounter(prometheus.CounterOpts{Name: "trivet_tftp_resent_packets_total",
			Help: "Packets sent again."}),
		dropped: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "trivet_tftp_dropped_packets_total",
			Help: "Packets to the TFTP port that were not answered, by reason."}, []string{"reason"}),
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
	m.transfers.WithLabelValues(verdict(r.Err)).Inc()
	m.bytes.Add(float64(r.Acked))
	m.resent.Add(float64(r.Resent))
}

// verdict sorts the ends of transfers into few kinds.
func verdict(err error) string {
	var peer *PeerError
	switch code, _ := failure(err); {
	case err == nil:
		return "done"
	case errors.As(err, &peer):
		return "ended by peer" // firmware does so when it only wanted the size
	case errors.Is(err, trivet.ErrInvalid), code == CodeAccess:
		return "refused"
	case code == CodeNotFound:
		return "not found"
	case errors.Is(err, errSilent):
		return "silent"
	default:
		return "failed"
	}
}
