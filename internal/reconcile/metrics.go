package reconcile

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

var (
	waitingKeys = prometheus.NewDesc("trivet_reconcile_waiting_keys",
		"Keys that wait for a worker of a controller on this head.", []string{"controller"}, nil)
	failingKeys = prometheus.NewDesc("trivet_reconcile_failing_keys",
		"Keys whose last attempt by a controller on this head failed; they are retried with backoff.",
		[]string{"controller"}, nil)
	oldestKey = prometheus.NewDesc("trivet_reconcile_oldest_seconds",
		"For how long the oldest of the waiting keys has waited.", []string{"controller"}, nil)
)

// collector collects the lengths and ages of queues, by controller.
type collector map[string]*Queue

func (c collector) Describe(to chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, to) }

func (c collector) Collect(to chan<- prometheus.Metric) {
	for name, q := range c {
		s := q.stats()
		to <- prometheus.MustNewConstMetric(waitingKeys, prometheus.GaugeValue, float64(s.waiting), name)
		to <- prometheus.MustNewConstMetric(failingKeys, prometheus.GaugeValue, float64(s.failing), name)
		to <- prometheus.MustNewConstMetric(oldestKey, prometheus.GaugeValue, s.oldest.Seconds(), name)
	}
}

// stats are the length and age of a queue.
type stats struct {
	waiting, failing int
	oldest           time.Duration
}

func (q *Queue) stats() stats {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := stats{waiting: len(q.waiting), failing: len(q.failures)}
	for _, list := range []fifo{q.ready, q.retries} {
		if len(list) > 0 {
			s.oldest = max(s.oldest, time.Since(list[0].at))
		}
	}
	return s
}
