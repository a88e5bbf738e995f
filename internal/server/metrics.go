package server

import "github.com/prometheus/client_golang/prometheus"

// tellLeader tells in the metrics whether this head's member leads.
func (s *Server) tellLeader() {
	s.metrics.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "trivet_store_leader", Help: "1 where this head's member of the store leads, as far as it knows.",
	}, func() float64 {
		if s.member.Leads() {
			return 1
		}
		return 0
	}))
}
