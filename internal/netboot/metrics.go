package netboot

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	scripts   *prometheus.CounterVec
	noAddress prometheus.Counter
	declined  prometheus.Counter
	takeovers prometheus.Counter
	lost      *prometheus.CounterVec
}

// newMetrics registers them with r, if there is one.
func newMetrics(r prometheus.Registerer) *metrics {
	opts := func(name, help string) prometheus.CounterOpts {
		return prometheus.CounterOpts{Name: "trivet_netboot_" + name, Help: help}
	}
	m := &metrics{
		scripts:   prometheus.NewCounterVec(opts("scripts_total", "Boot scripts by what they boot."), []string{"way"}),
		noAddress: prometheus.NewCounter(opts("no_address_total", "DHCP clients that could not be offered an address.")),
		declined:  prometheus.NewCounter(opts("declined_addresses_total", "Addresses that machines found in use by others.")),
		takeovers: prometheus.NewCounter(opts("takeovers_total", "DHCP packets answered in another head's place.")),
		lost: prometheus.NewCounterVec(opts("lost_writes_total", "Writes for later that failed or had no room."),
			[]string{"what"}),
	}
	if r != nil {
		r.MustRegister(m.scripts, m.noAddress, m.declined, m.takeovers, m.lost)
	}
	return m
}
