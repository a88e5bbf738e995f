package bucket

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/state"
)

var (
	failures = prometheus.NewDesc("trivet_bucket_failures",
		"Attempts to keep copies of images in the bucket of the site that failed since the last success, by its record: "+
			"each head has the same value.", nil, nil)
	missing = prometheus.NewDesc("trivet_bucket_missing",
		"Images of which the bucket of the site has no copy, by its record.", nil, nil)
	checked = prometheus.NewDesc("trivet_bucket_checked_timestamp_seconds",
		"When all copies in the bucket of the site were compared last, in Unix time, by its record; 0: never.", nil, nil)
)

// collector collects what the record of the site has of its bucket, if it has one.
type collector struct{ tables *state.Tables }

func (c collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{failures, missing, checked} {
		to <- d
	}
}

func (c collector) Collect(to chan<- prometheus.Metric) {
	site, err := c.tables.Sites.Get(trivet.SiteName)
	if err != nil || site.Spec.Blobs == nil || site.Status.Blobs == nil {
		return
	}
	st, last := site.Status.Blobs, 0.0
	if !st.Checked.IsZero() {
		last = float64(st.Checked.Unix())
	}
	to <- prometheus.MustNewConstMetric(failures, prometheus.GaugeValue, float64(st.Failures))
	to <- prometheus.MustNewConstMetric(missing, prometheus.GaugeValue, float64(st.Images-st.Copied))
	to <- prometheus.MustNewConstMetric(checked, prometheus.GaugeValue, last)
}
