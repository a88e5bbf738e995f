package health

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/invariant"
	"github.com/trivet-project/trivet/internal/wait"
)

// Times of the checks for metrics: the first soon after the start, when heads have found each other.
const (
	firstCheck    = 3 * time.Second
	checkInterval = time.Minute
)

// Run checks the invariants about once a minute, for metrics, until ctx ends.
func (s *Source) Run(ctx context.Context, to prometheus.Registerer) {
	states := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "trivet_invariant",
		Help: "State of each invariant of trivet status as this head sees it, about once a minute: 0 it holds, 1 a " +
			"warning, 2 it is broken."}, []string{"invariant"})
	to.MustRegister(states, s.createdGauge(), s.verifiedGauge())
	for pause := firstCheck; wait.Sleep(ctx, wait.Jitter(pause)) == nil; pause = checkInterval {
		report, err := s.Report(ctx)
		if err != nil {
			return
		}
		for _, i := range report.Invariants {
			states.WithLabelValues(i.Name).Set(float64(invariant.Level(i.State)))
		}
	}
}

func (s *Source) createdGauge() prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "trivet_backup_created_timestamp_seconds",
		Help: "When the last backup was made that is recorded, in Unix time; 0: none is."},
		func() float64 { return unix(s.backups().Created) })
}

func (s *Source) verifiedGauge() prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "trivet_backup_verified_timestamp_seconds",
		Help: "When the last backup was made that was proven to be restorable, in Unix time; 0: none was."},
		func() float64 { return unix(s.backups().Verified) })
}

// backups returns what is recorded of backups.
func (s *Source) backups() trivet.BackupStatus {
	site, err := s.Tables.Sites.GetShared(trivet.SiteName)
	if err != nil {
		return trivet.BackupStatus{}
	}
	return site.Status.Backups
}

func unix(e *trivet.BackupEvent) float64 {
	if e == nil {
		return 0
	}
	return float64(e.Made.Unix())
}
