package learnt_test

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/trivet-project/trivet/internal/learnt"
)

func durations(t *rapid.T, label string) []time.Duration {
	ms := rapid.SliceOfN(rapid.IntRange(0, 100*3600*1000), 1, 200).Draw(t, label)
	all := make([]time.Duration, len(ms))
	for i := range ms {
		all[i] = time.Duration(ms[i]) * time.Millisecond
	}
	return all
}

func histogram(all []time.Duration) learnt.Histogram {
	h := learnt.Histogram{}
	for _, d := range all {
		h.Add(d)
	}
	return h
}

// A quantile is not less than the exact one and not much more, and does not become less for a larger part. Its size
// does not depend on how much was counted.
func TestQuantiles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := durations(t, "ms")
		h := histogram(all)
		slices.Sort(all)
		before := time.Duration(0)
		for _, part := range []int{0, 1, 10, 50, 95, 99, 100} {
			got := h.Quantile(float64(part) / 100)
			exact := all[max(0, (part*len(all)+99)/100-1)]
			most := max(exact+exact/10, 10*time.Millisecond) + time.Second // rounded up
			if limit := 93 * time.Hour; exact > limit {                    // of the last bucket
				exact = limit
			}
			if got < before || got < exact || got > most {
				t.Fatalf("%d %% of %v: %s after %s, exactly %s", part, all, got, before, exact)
			}
			before = got
		}
		if len(h) > 201 || len(h) > len(all) {
			t.Fatalf("%d buckets", len(h))
		}
	})
}

func TestQuantileOfNothing(t *testing.T) {
	if got := (learnt.Histogram{}).Quantile(0.99); got != 0 {
		t.Errorf("it is %s", got)
	}
}

// What two heads have counted is the same whichever is added to the other, and what one head would have counted.
func TestHistogramsMerge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x, y := durations(t, "x"), durations(t, "y")
		xy, yx := histogram(x), histogram(y)
		xy.Merge(histogram(y))
		yx.Merge(histogram(x))
		if one := histogram(append(x, y...)); !maps.Equal(xy, yx) || !maps.Equal(xy, one) {
			t.Fatalf("%v, %v, by one head %v", xy, yx, one)
		}
	})
}

func TestHistogramIsStored(t *testing.T) {
	h := histogram([]time.Duration{time.Second, time.Second, time.Hour})
	text, err := json.Marshal(h)
	if err != nil || string(text) != "[[54,2],[148,1]]" {
		t.Errorf("%s, %v", text, err)
	}
	var got learnt.Histogram
	if err := json.Unmarshal(text, &got); err != nil || !maps.Equal(got, h) {
		t.Errorf("read %v, %v", got, err)
	}
	for _, bad := range []string{"[[-1,2]]", "[[500,1]]", "[[1,-2]]", "[[1,0]]", "{}"} {
		if json.Unmarshal([]byte(bad), &got) == nil {
			t.Errorf("%s is taken for a histogram", bad)
		}
	}
}
