package limit

import "github.com/prometheus/client_golang/prometheus"

// Register registers the set's metrics; port is the name of its listener.
func (s *Set) Register(r prometheus.Registerer, port string) {
	number := func(caller string, of func(Stats) int) {
		r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "trivet_limit_entries",
			Help:        "Connections and TFTP transfers that callers hold, by port, of known and unknown callers.",
			ConstLabels: prometheus.Labels{"port": port, "caller": caller},
		}, func() float64 { return float64(of(s.Stats())) }))
	}
	count := func(result string, of func(Stats) int) {
		r.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "trivet_limit_exceeded_total",
			Help: "Connections and TFTP transfers above a limit, by port: refused, replaced by " +
				"another, or refused as their address begins too many (rate).",
			ConstLabels: prometheus.Labels{"port": port, "result": result},
		}, func() float64 { return float64(of(s.Stats())) }))
	}
	number("unknown", func(s Stats) int { return s.Unknown })
	number("known", func(s Stats) int { return s.Known })
	count("refused", func(s Stats) int { return s.Refused })
	count("replaced", func(s Stats) int { return s.Evicted })
	count("rate", func(s Stats) int { return s.Limited })
}
