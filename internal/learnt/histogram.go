package learnt

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"
)

// Histogram counts durations in buckets whose limits grow by an eighth of an octave each: a quantile of it is at most
// 9 % more than the exact one. A bucket has a weight and no number, as older durations have less weight than later
// ones.
type Histogram map[int]float64

const (
	perOctave = 8
	shortest  = 10 * time.Millisecond // the limit of bucket 0
	maxBucket = 200                   // whose limit is 93 hours
	// negligible is the weight below which a bucket or a failure is dropped.
	negligible = 0.01
)

func bucketOf(d time.Duration) int {
	if d <= shortest {
		return 0
	}
	i := int(math.Ceil(perOctave * math.Log2(float64(d)/float64(shortest))))
	return min(max(i, 0), maxBucket)
}

// limitOf returns the longest duration of a bucket.
func limitOf(bucket int) time.Duration {
	return time.Duration(float64(shortest) * math.Exp2(float64(bucket)/perOctave))
}

// Add counts a duration.
func (h Histogram) Add(d time.Duration) { h[bucketOf(d)]++ }

// Merge adds what another histogram has counted.
func (h Histogram) Merge(other Histogram) {
	for bucket, weight := range other {
		h[bucket] += weight
	}
}

// Weight returns the weight of all durations: their number, less what the older ones have lost.
func (h Histogram) Weight() (sum float64) {
	for _, bucket := range slices.Sorted(maps.Keys(h)) { // sums of one histogram are equal in the last digit, too
		sum += h[bucket]
	}
	return sum
}

// Quantile returns a duration that at least a part q of all did not exceed; 0 where there is none.
func (h Histogram) Quantile(q float64) time.Duration {
	const tolerance = 1e-9 // of sums of weights
	need, sum, last := q*h.Weight(), 0.0, 0
	for _, last = range slices.Sorted(maps.Keys(h)) {
		if sum += h[last]; sum >= need*(1-tolerance) {
			break
		}
	}
	if len(h) == 0 {
		return 0
	}
	return forPeople(limitOf(last))
}

// forPeople rounds a duration up: to hundredths of a second below a second, tenths below ten seconds, or seconds.
func forPeople(d time.Duration) time.Duration {
	unit := time.Second
	switch {
	case d < time.Second:
		unit = 10 * time.Millisecond
	case d < 10*time.Second:
		unit = 100 * time.Millisecond
	}
	return (d + unit - 1) / unit * unit
}

// scale multiplies all weights, and drops those that become negligible.
func (h Histogram) scale(by float64) {
	for bucket := range h {
		if h[bucket] *= by; h[bucket] < negligible {
			delete(h, bucket)
		}
	}
}

// MarshalJSON writes the buckets as pairs, in order: [[12,3],[13,0.5]].
func (h Histogram) MarshalJSON() ([]byte, error) {
	pairs := make([][2]float64, 0, len(h))
	for _, bucket := range slices.Sorted(maps.Keys(h)) {
		pairs = append(pairs, [2]float64{float64(bucket), rounded(h[bucket])})
	}
	return json.Marshal(pairs)
}

// UnmarshalJSON reads the buckets.
func (h *Histogram) UnmarshalJSON(text []byte) error {
	var pairs [][2]float64
	if err := json.Unmarshal(text, &pairs); err != nil {
		return err
	}
	*h = Histogram{}
	for _, p := range pairs {
		bucket := int(p[0])
		if bucket < 0 || bucket > maxBucket || !(p[1] > 0) {
			return fmt.Errorf("a bucket is %v", p)
		}
		(*h)[bucket] += p[1]
	}
	return nil
}

// rounded returns a weight with three digits after the point, as it is stored.
func rounded(weight float64) float64 { return math.Round(weight*1000) / 1000 }
