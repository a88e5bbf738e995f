package backup

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/trivet-project/trivet/internal/state"
)

var (
	failures = prometheus.NewDesc("trivet_backup_schedule_failures",
		"Attempts of a schedule of backups that failed since its last success, by its record: each head has the same "+
			"value.", []string{"schedule"}, nil)
	proven = prometheus.NewDesc("trivet_backup_schedule_proven_timestamp_seconds",
		"When the last backup of a schedule was made that was proven to be restorable, in Unix time, by its record; 0: "+
			"none was.", []string{"schedule"}, nil)
)

// collector collects what the records of the schedules have.
type collector struct{ tables *state.Tables }

func (c collector) Describe(to chan<- *prometheus.Desc) {
	to <- failures
	to <- proven
}

func (c collector) Collect(to chan<- prometheus.Metric) {
	for s := range c.tables.Schedules.AllShared() {
		made := 0.0
		if s.Status.Last != nil {
			made = float64(s.Status.Last.Made.Unix())
		}
		to <- prometheus.MustNewConstMetric(failures, prometheus.GaugeValue, float64(s.Status.Failures), s.Name)
		to <- prometheus.MustNewConstMetric(proven, prometheus.GaugeValue, made, s.Name)
	}
}
