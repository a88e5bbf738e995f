package action

import (
	"fmt"
	"math/bits"
	"time"
)

// latencies are how long the reads of a disk took: a histogram with 8 buckets for each doubling of the time, so that
// the reads of a large disk need no more memory than those of a small one.
type latencies struct {
	buckets [8 * 40]int64 // by microseconds: see bucketOf
	reads   int64
	bytes   int64
	took    time.Duration
	longest time.Duration
}

func (l *latencies) add(took time.Duration, bytes int) {
	l.buckets[bucketOf(took)]++
	l.reads++
	l.bytes += int64(bytes)
	l.took += took
	l.longest = max(l.longest, took)
}

// bucketOf returns the bucket of a time: the number of its highest bit, and the three bits below.
func bucketOf(d time.Duration) int {
	us := uint64(max(d.Microseconds(), 0)) + 8 // so that there are three
	high := bits.Len64(us) - 1
	return min(8*high+int(us>>(high-3)&7), 8*40-1)
}

// endOf returns the longest time of a bucket.
func endOf(bucket int) time.Duration {
	high, low := bucket/8, uint64(bucket%8)
	if high < 3 {
		return 0
	}
	return time.Duration((8+low+1)<<(high-3)-8-1) * time.Microsecond
}

// percentile returns a time that so many of 100 reads did not exceed; at most 13 % more than the least such time.
func (l *latencies) percentile(p int64) time.Duration {
	left := (l.reads*p + 99) / 100
	for i, n := range l.buckets {
		if left -= n; left <= 0 && l.reads > 0 {
			return min(endOf(i), l.longest)
		}
	}
	return l.longest
}

// rate is in bytes per second of reading.
func (l *latencies) rate() float64 {
	if l.took <= 0 {
		return 0
	}
	return float64(l.bytes) / l.took.Seconds()
}

// String is for people: "1024 at 180 MB/s, 50 % within 21ms, 99 % within 40ms, the longest 102ms".
func (l *latencies) String() string {
	if l.reads == 0 {
		return "none"
	}
	return fmt.Sprintf("%d at %.0f MB/s, 50 %% within %s, 99 %% within %s, the longest %s", l.reads, l.rate()/1e6,
		l.percentile(50), l.percentile(99), l.longest.Round(time.Microsecond))
}
