package server

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/trivet-project/trivet/internal/blob"
	"github.com/trivet-project/trivet/internal/cluster"
)

// damagedBlob returns what reports a damaged blob.
func (s *Server) damagedBlob() func(blob.Digest, error) {
	damaged := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "trivet_blobs_damaged_total",
		Help: "Blobs whose file turned out to be damaged while it was served.",
	})
	s.metrics.MustRegister(damaged)
	return func(_ blob.Digest, err error) {
		damaged.Inc()
		s.cfg.Log.Error("a blob on this head's disk is damaged; fetching it from another head", "error", err)
	}
}

// leaderGauge returns the metric of whether this head's member is the leader.
func leaderGauge(m *cluster.Member) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "trivet_store_leader",
		Help: "1 where this head's member of the store is the leader, as far as it knows.",
	}, func() float64 {
		if m.IsLeader() {
			return 1
		}
		return 0
	})
}
