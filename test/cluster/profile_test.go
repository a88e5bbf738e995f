package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// workflowsPerHour is the rate of the soak.
const workflowsPerHour = 2000

// restartsPerRun divides the duration: there is a restart between two of its parts.
const restartsPerRun = 12

// TestSoakWorkflows runs 2,000 workflows an hour for PROFILE_DURATION, 20 minutes if that is not set, on three heads of
// which two are killed or stopped alternately and started again. What the third one uses is flat. It is added to
// docs/profile.md by make soak.
func TestSoakWorkflows(t *testing.T) {
	soak(t)
	duration := 20 * time.Minute
	if text := os.Getenv("PROFILE_DURATION"); text != "" {
		var err error
		if duration, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	p := three(t)
	p.load = size{racks: 2, machines: 6, loops: 9, each: time.Hour / workflowsPerHour, pulse: time.Second}
	tr := begin(t, seedOf(t), p)
	samples := make(chan []sample)
	ctx, end := context.WithTimeout(t.Context(), duration)
	defer end()
	go func() { samples <- tr.sampleUntil(ctx, tr.heads[0], duration/100) }()
	for n := range restartsPerRun {
		nap(ctx, duration/restartsPerRun)
		if ctx.Err() != nil {
			break
		}
		if err := tr.inject(t.Context(), restart(n)); err != nil {
			t.Error(err)
		}
	}
	all := <-samples
	wrong := tr.end(t)
	third, last, err := quarters(all)
	for _, err := range append(wrong, err) {
		if err != nil {
			t.Error(err)
		}
	}
	if err != nil {
		return
	}
	for i, m := range measures {
		t.Logf("%s over time: %s", m.name, course(all, i))
		t.Logf("%s: %.4g, %.4g %s", m.name, third.values[i]/m.unit, last.values[i]/m.unit, m.of)
	}
	for _, text := range rising(third, last) {
		t.Errorf("it is not flat: %s", text)
	}
	if page := os.Getenv("PROFILE_RECORD"); page != "" {
		h := &tr.history.History
		if err := addToProfile(page, h.Version, duration, h.succeeded(), len(h.Faults), third, last); err != nil {
			t.Error(err)
		}
	}
}

// course is the values of a measure, of 20 samples.
func course(all []sample, measure int) string {
	var b strings.Builder
	for i := 0; i < len(all); i += max(len(all)/20, 1) {
		fmt.Fprintf(&b, " %.4g", all[i].values[measure]/measures[measure].unit)
	}
	return b.String()
}

// sampleUntil measures a head again and again until ctx ends.
func (t *trial) sampleUntil(ctx context.Context, h *head, each time.Duration) (all []sample) {
	for ctx.Err() == nil {
		nap(ctx, each)
		runs := 0
		t.history.note(func(h *History) { runs = h.succeeded() })
		if s, err := sampleOf(ctx, h, t.history.now(), runs); err == nil {
			all = append(all, s)
		}
	}
	return all
}

// succeeded returns how many workflows have ended.
func (h *History) succeeded() (n int) {
	for _, w := range h.Waits {
		if w.Return > 0 && w.Deadline == 0 {
			n++
		}
	}
	return n
}

// restart kills a head but the first, or stops it in order, and starts it again.
func restart(n int) kind {
	return kind{name: "restart", hold: 2 * time.Second,
		begin: func(_ context.Context, t *trial) (string, func() error, error) {
			h := t.heads[1+n/2%2]
			if n%2 == 0 {
				return t.killed(h)
			}
			return h.port, func() error { return h.start("") }, h.stop()
		}}
}

// The rule finds what rises, and allows what workflows leave.
func TestRising(t *testing.T) {
	flat := func(at, runs int) sample {
		s := sample{at: time.Duration(at) * time.Second, runs: runs}
		for range measures {
			s.values = append(s.values, float64(1000*mib+at%7*mib))
		}
		return s
	}
	var samples []sample
	for i := range 100 {
		samples = append(samples, flat(i, 10*i))
	}
	third, last, err := quarters(samples)
	if err != nil || third.runs != 620 || last.runs != 870 {
		t.Fatalf("%+v, %+v, %v", third, last, err)
	}
	if all := rising(third, last); len(all) != 0 {
		t.Errorf("flat, and reported: %q", all)
	}
	for i, m := range measures {
		limit := 1000*mib*(m.percent/100) + m.constant + m.perRun*250
		for _, tc := range []struct {
			by    float64
			rises bool
		}{{limit - 1, false}, {limit + 1, true}} {
			high := lows{last.runs, slices.Clone(third.values)}
			high.values[i] += tc.by
			if all := rising(third, high); (len(all) == 1) != tc.rises {
				t.Errorf("%s is higher by %v: %q", m.name, tc.by, all)
			}
		}
	}
	if _, _, err := quarters(samples[:5]); err == nil {
		t.Error(errors.New("five samples are enough"))
	}
}
