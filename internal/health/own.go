package health

import (
	"context"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/trivet-project/trivet"
)

// maxMissing bounds the digests of missing blobs that a head reports.
const maxMissing = 500

// Own returns what this head knows of itself, at most some seconds old.
func (s *Source) Own(ctx context.Context) (trivet.OwnFacts, error) {
	if !s.Started() {
		return trivet.OwnFacts{}, errStarting
	}
	o, err := s.own.get(ctx, s.collectOwn)
	o.Time = time.Now() // it is compared with another head's clock when it is received
	return o, err
}

func (s *Source) collectOwn(ctx context.Context) (o trivet.OwnFacts) {
	o.Quorum, o.Refused, o.Alarms = s.Quorum(), s.Refused(), s.Member.Alarms()
	if d, err := s.Member.Disk(); err == nil {
		o.DiskFree, o.DiskSize, o.DiskNeeded = d.Free, d.Size, d.Needed
	}
	o.DiskErrors = s.DiskErrors()
	o.MemoryUsed = residentBytes()
	o.MemoryTotal, o.MemoryAvailable = hostMemory()
	u := s.Member.Usage()
	o.StoreUsed, o.StoreFile, o.StoreQuota = u.Used, u.File, u.Quota
	o.Certificates = s.Certificates()
	missing := s.MissingBlobs()
	o.BlobsMissing = len(missing)
	for _, ref := range missing[:min(len(missing), maxMissing)] {
		o.Missing = append(o.Missing, ref.Digest)
	}
	late := s.Late()
	o.Overdue, o.OverdueRuns, o.Silent, o.SilentRuns = late.Overdue, late.OverdueRuns, late.Silent, late.SilentRuns
	o.Takeover = s.Takeover()
	o.Segments = s.Segments()
	o.Probes = s.probes(ctx)
	return o
}

// residentBytes returns the memory of this process; 0: not known.
func residentBytes() int64 {
	text, err := os.ReadFile("/proc/self/statm")
	fields := strings.Fields(string(text))
	if err != nil || len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}

// hostMemory returns the memory of this host, and what of it programs may still use; 0: not known.
func hostMemory() (total, available int64) {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, 0
	}
	return parseMemory(string(text))
}

func parseMemory(text string) (total, available int64) {
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		n, err := strconv.ParseInt(fields[1], 10, 64)
		if err != nil {
			continue
		}
		switch fields[0] {
		case "MemTotal:":
			total = n << 10
		case "MemAvailable:":
			available = n << 10
		}
	}
	return total, available
}
