package cluster

import (
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// A write waits for at least one sync of the log, and heads that wait long for theirs lose their leader.
const (
	slowSync  = 100 * time.Millisecond // a sync that takes this long is told; a good disk needs a tenth of it at most
	lookEvery = 2 * time.Second
)

// syncMetric is etcd's own measure of the syncs of its log: a histogram, in seconds.
const syncMetric = "etcd_disk_wal_fsync_duration_seconds"

// syncs is how often the log was synced so far, and how long that took.
type syncs struct {
	count uint64
	took  time.Duration
}

// syncsSoFar is of all members of this process.
func syncsSoFar() (s syncs) {
	families, _ := prometheus.DefaultGatherer.Gather() // of an error, what there is
	for _, f := range families {
		if f.GetName() == syncMetric {
			h := f.GetMetric()[0].GetHistogram()
			return syncs{h.GetSampleCount(), time.Duration(h.GetSampleSum() * float64(time.Second))}
		}
	}
	return s
}

// watchDisk warns when the disk gets slow, and tells when it is well again, until closing is closed.
func (m *Member) watchDisk(dir string, log *slog.Logger) {
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	slow, last := false, syncsSoFar()
	for {
		select {
		case <-m.closing:
			return
		case <-look.C:
		}
		now := syncsSoFar()
		if now.count == last.count {
			continue
		}
		mean := (now.took - last.took) / time.Duration(now.count-last.count)
		last = now
		if slow == (mean >= slowSync) {
			continue
		}
		if slow = !slow; slow {
			log.Warn("the disk is slow: every write waits for it", "dir", dir, "sync", mean.Round(time.Millisecond),
				"hint", "see what else uses this disk; the store wants one that syncs within 10 ms")
		} else {
			log.Info("the disk is no longer slow", "dir", dir, "sync", mean.Round(time.Millisecond))
		}
	}
}
