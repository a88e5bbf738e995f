package cluster

import (
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// A write waits for at least one sync of the write-ahead log, and a leader with a slow disk is replaced.
const (
	slowSync      = 100 * time.Millisecond // mean sync time that causes a warning; a good disk needs 10 ms at most
	checkInterval = 2 * time.Second
)

// syncMetric is etcd's histogram of the sync times of its log, in seconds.
const syncMetric = "etcd_disk_wal_fsync_duration_seconds"

// syncs is the number of log syncs and their total time.
type syncs struct {
	count uint64
	took  time.Duration
}

// syncTotals returns the syncs of all members of this process.
func syncTotals() (s syncs) {
	families, _ := prometheus.DefaultGatherer.Gather() // partial results are good enough
	for _, f := range families {
		if f.GetName() == syncMetric {
			h := f.GetMetric()[0].GetHistogram()
			return syncs{h.GetSampleCount(), time.Duration(h.GetSampleSum() * float64(time.Second))}
		}
	}
	return s
}

// watchDisk logs when the disk becomes slow and when it recovers, until closing is closed.
func (m *Member) watchDisk(dir string, log *slog.Logger) {
	ticker := time.NewTicker(checkInterval)
	defer ticker.Stop()
	slow, last := false, syncTotals()
	for {
		select {
		case <-m.closing:
			return
		case <-ticker.C:
		}
		now := syncTotals()
		if now.count == last.count {
			continue
		}
		mean := (now.took - last.took) / time.Duration(now.count-last.count)
		last = now
		if slow == (mean >= slowSync) {
			continue
		}
		if slow = !slow; slow {
			log.Warn("slow disk: every write waits for it", "dir", dir, "sync", mean.Round(time.Millisecond),
				"hint", "check what else uses this disk; the store needs one that syncs within 10 ms")
		} else {
			log.Info("the disk is no longer slow", "dir", dir, "sync", mean.Round(time.Millisecond))
		}
	}
}
