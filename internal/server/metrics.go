package server

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/trivet-project/trivet/internal/cluster"
)

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
