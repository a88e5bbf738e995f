package netboot

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	scripts    *prometheus.CounterVec
	handshakes *prometheus.CounterVec
	unoffered  prometheus.Counter
	takeovers  prometheus.Counter
	foreign    prometheus.Counter
	segments   prometheus.Counter
	dropped    prometheus.Counter
}

// newMetrics registers them with r, if it is not nil.
func newMetrics(r prometheus.Registerer) *metrics {
	opts := func(name, help string) prometheus.CounterOpts {
		return prometheus.CounterOpts{Name: "trivet_netboot_" + name, Help: help}
	}
	m := &metrics{
		scripts: prometheus.NewCounterVec(opts("scripts_total", "Boot scripts served, by boot target."),
			[]string{"target"}),
		handshakes: prometheus.NewCounterVec(opts("handshakes_total", "TLS handshakes at the boot port, by result: "+
			"completed, failed (the client does not trust the boot CA, or sent no handshake), or refused (it is in no "+
			"network of the site, or began too many)."), []string{"result"}),
		unoffered: prometheus.NewCounter(opts("unoffered_requests_total",
			"DHCPDISCOVER packets that no address could be offered for.")),
		takeovers: prometheus.NewCounter(opts("takeovers_total", "DHCP packets answered in place of another head.")),
		foreign: prometheus.NewCounter(opts("foreign_servers_total", "Answers of DHCP servers that are not heads, "+
			"and DHCPREQUEST packets that accepted them, in networks whose addresses Trivet assigns.")),
		segments: prometheus.NewCounter(opts("segment_packets_total",
			"DHCP packets from segments without a Network, which are not answered.")),
		dropped: prometheus.NewCounter(opts("dropped_writes_total",
			"Deferred writes of boot progress that failed or did not fit the queue.")),
	}
	if r != nil {
		r.MustRegister(m.scripts, m.handshakes, m.unoffered, m.takeovers, m.foreign, m.segments, m.dropped)
	}
	return m
}
