package server

import (
	"runtime"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/trivet-project/trivet"

	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/blob"
	"github.com/trivet-project/trivet/internal/cluster"
	"github.com/trivet-project/trivet/internal/peer"
)

// buildInfo returns the metric of what this head runs.
func buildInfo(version string) prometheus.Collector {
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name:        "trivet_build_info",
		Help:        "1, with the version of this head and of the Go release that it was built with.",
		ConstLabels: prometheus.Labels{"version": version, "goversion": runtime.Version()},
	})
	info.Set(1)
	return info
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

// termGauge returns the metric of the term of the store.
func termGauge(m *cluster.Member) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "trivet_store_term",
		Help: "Term of the last entry that this head's member of the store has applied. Each election begins another.",
	}, func() float64 { return float64(m.LastTerm()) })
}

// successionCounter returns the metric of leaders that were replaced because their processes had ended.
func successionCounter(m *cluster.Member) prometheus.Collector {
	return prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "trivet_store_successions_total",
		Help: "Leaders that this head's member gave up because their processes had ended, before they were silent.",
	}, func() float64 { return float64(m.Successions()) })
}

// streamGauge returns the metric of the streams by which other members receive from this head's.
func streamGauge(e *peer.Exits) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "trivet_store_streams",
		Help: "Streams that the other members of the store have open to this head's: two of each. The end of the " +
			"process of one that has none is noticed by its silence only.",
	}, func() float64 { return float64(e.Streams()) })
}

// blobGauges returns the metrics of the disk that blobs take. A quota of 0 is none.
func blobGauges(s *blob.Store, quota trivet.ByteSize) (used, limit prometheus.Collector) {
	used = prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "trivet_blobs_disk_bytes",
		Help: "Bytes of the disk that the blobs of this head take, with those that are being received.",
	}, func() float64 {
		n, err := s.Usage()
		if err != nil {
			return 0
		}
		return float64(n)
	})
	limit = prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "trivet_blobs_quota_bytes",
		Help: "Bytes of the disk that the blobs of this head may take; 0: all but a reserve.",
	}, func() float64 { return float64(quota) })
	return used, limit
}

// expiryGauge returns the metric of when this head's certificate expires, which is renewed long before.
func expiryGauge(cert auth.CertFunc) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "trivet_certificate_expiry_timestamp_seconds",
		Help: "When the certificate of this head's member expires, in Unix time.",
	}, func() float64 {
		c, err := cert()
		if err != nil {
			return 0
		}
		return float64(c.Leaf.NotAfter.Unix())
	})
}

// The metrics of the size of this head's store.
var (
	fileBytes  = prometheus.NewDesc("trivet_store_file_bytes", "Size of the file of this head's store.", nil, nil)
	usedBytes  = prometheus.NewDesc("trivet_store_used_bytes", "Part of the store's quota that is in use.", nil, nil)
	quotaBytes = prometheus.NewDesc("trivet_store_quota_bytes",
		"Quota of the store. From 70 % on there is an event; from 90 % on only deletions and small changes are accepted.",
		nil, nil)
	memberRevision = prometheus.NewDesc("trivet_store_revision",
		"Revision of this head's member of the store.", nil, nil)
	freeBytes = prometheus.NewDesc("trivet_disk_free_bytes",
		"Free space of the file system that this head's store is in.", nil, nil)
)

// usageCollector collects them.
type usageCollector struct{ member *cluster.Member }

func (c usageCollector) Describe(to chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, to) }

func (c usageCollector) Collect(to chan<- prometheus.Metric) {
	u := c.member.Usage()
	to <- prometheus.MustNewConstMetric(fileBytes, prometheus.GaugeValue, float64(u.File))
	to <- prometheus.MustNewConstMetric(usedBytes, prometheus.GaugeValue, float64(u.Used))
	to <- prometheus.MustNewConstMetric(quotaBytes, prometheus.GaugeValue, float64(u.Quota))
	to <- prometheus.MustNewConstMetric(memberRevision, prometheus.GaugeValue, float64(c.member.Revision()))
	if free, err := c.member.FreeSpace(); err == nil {
		to <- prometheus.MustNewConstMetric(freeBytes, prometheus.GaugeValue, float64(free))
	}
}
