package bmc

import (
	"context"
	"errors"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/trivet-project/trivet"
)

// Metrics count the errors of BMCs. A nil one counts nothing.
type Metrics struct{ errors *prometheus.CounterVec }

// errorKind is a value of label kind, and the errors that have it; nil: all others.
type errorKind struct {
	name string
	err  error
}

// errorKinds are all kinds, in the order in which an error is assigned to one.
var errorKinds = []errorKind{
	{"unauthenticated", trivet.ErrUnauthenticated},
	{"forbidden", trivet.ErrForbidden},
	{"invalid", trivet.ErrInvalid},
	{"timeout", context.DeadlineExceeded},
	{"unknown", trivet.ErrUnknown},
	{"unavailable", trivet.ErrUnavailable},
	{"other", nil},
}

// errorUses are the values of label use.
var errorUses = []string{"power", "read", "console", "takeover"}

// NewMetrics returns registered metrics, with all counters at 0.
func NewMetrics(to prometheus.Registerer) *Metrics {
	m := &Metrics{errors: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "trivet_bmc_errors_total",
		Help: "Attempts of this head to use a BMC that failed, by use (power: a change of power; read: its power " +
			"state; console; takeover: the other head's) and kind: unauthenticated (the BMC refuses user or password), " +
			"forbidden (the secret may not be sent there, or the user may not do that), invalid (spec.bmc or its secret), " +
			"timeout, unknown (it may have been done), unavailable (it does not answer, or failed), other.",
	}, []string{"use", "kind"})}
	for _, use := range errorUses {
		for _, k := range errorKinds {
			m.errors.WithLabelValues(use, k.name)
		}
	}
	to.MustRegister(m.errors)
	return m
}

// Failed counts an error of a BMC; nil is none. An attempt that its caller has ended is not the BMC's.
func (m *Metrics) Failed(use string, err error) {
	if m == nil || err == nil || errors.Is(err, context.Canceled) {
		return
	}
	i := slices.IndexFunc(errorKinds, func(k errorKind) bool { return k.err == nil || errors.Is(err, k.err) })
	m.errors.WithLabelValues(use, errorKinds[i].name).Inc()
}
