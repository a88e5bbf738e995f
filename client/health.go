package client

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// HeadHealth is the state of a head as a client sees it.
type HeadHealth struct {
	URL        string
	Configured bool // else learned from the cluster
	State      HeadState
	Since      time.Time
	// Cause is the error of a head that is unready or down.
	Cause error
	// Requests counts the requests that were sent to it, Failures those that it did not serve.
	Requests, Failures uint64
}

// Health returns the state of the heads, the configured ones first.
func (c *Client) Health() []HeadHealth {
	hs := c.heads
	hs.mu.Lock()
	defer hs.mu.Unlock()
	var all []HeadHealth
	for _, h := range hs.list {
		all = append(all, HeadHealth{h.url, h.configured, h.state, h.since, h.cause, h.requests, h.failures})
	}
	return all
}

// Collector returns the client's metrics, for a program to register with its own: for each head whether it is up,
// the requests sent to it, and those that it did not serve.
func (c *Client) Collector() prometheus.Collector { return collector{c} }

type collector struct{ c *Client }

var (
	headUp = prometheus.NewDesc("trivet_client_head_up",
		"Whether a head serves this client.", []string{"head"}, nil)
	headRequests = prometheus.NewDesc("trivet_client_requests_total",
		"Requests sent to a head.", []string{"head"}, nil)
	headFailures = prometheus.NewDesc("trivet_client_failures_total",
		"Requests that a head did not serve.", []string{"head"}, nil)
)

// Describe implements [prometheus.Collector].
func (collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{headUp, headRequests, headFailures} {
		to <- d
	}
}

// Collect implements [prometheus.Collector].
func (m collector) Collect(to chan<- prometheus.Metric) {
	for _, h := range m.c.Health() {
		up := 0.0
		if h.State == HeadUp {
			up = 1
		}
		to <- prometheus.MustNewConstMetric(headUp, prometheus.GaugeValue, up, h.URL)
		to <- prometheus.MustNewConstMetric(headRequests, prometheus.CounterValue, float64(h.Requests), h.URL)
		to <- prometheus.MustNewConstMetric(headFailures, prometheus.CounterValue, float64(h.Failures), h.URL)
	}
}
