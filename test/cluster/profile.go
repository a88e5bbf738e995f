package cluster

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A profile is what a head uses, measured again and again while workflows run. It is flat where the least of the last
// quarter of the time is not above the least of the third one by more than an allowance: a part of it, a constant, and
// what the history of the workflows between costs, which is kept for a while by design. The first half is left out:
// what is bounded by a number of writes, such as the newest changes for watches and raft's newest entries, fills in
// about eight minutes.

// measure is one measured quantity.
type measure struct {
	name string
	unit float64 // it is printed in
	of   string  // the unit's name
	// percent, constant and perRun are the allowance; perRun is for each workflow that ended between the two.
	percent, constant, perRun float64
}

const mib = 1 << 20

// measures are all of them, in the order of a sample's values.
var measures = []measure{
	{"anonymous memory", mib, "MiB", 10, 32 * mib, 32 << 10},
	{"live heap", mib, "MiB", 10, 8 * mib, 24 << 10},
	{"goroutines", 1, "", 10, 40, 0},
	{"file descriptors", 1, "", 10, 24, 0},
	{"files", 1, "", 10, 24, 8},
	{"store in use", mib, "MiB", 10, 4 * mib, 64 << 10},
}

// sample is the values of all measures at one time.
type sample struct {
	at     time.Duration
	runs   int // workflows that have ended
	values []float64
}

// sampleOf measures a head.
func sampleOf(ctx context.Context, h *head, at time.Duration, runs int) (s sample, err error) {
	m, err := h.metrics(ctx)
	if err != nil {
		return s, err
	}
	pid := h.pid()
	memory, err := anonymous(pid)
	if err != nil {
		return s, err
	}
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return s, err
	}
	// The next collection is due when the heap is three times what was live at the last one (cmd/trivet/server.go).
	heap := m["go_memstats_next_gc_bytes"] / 3
	return sample{at, runs, []float64{memory, heap, m["go_goroutines"], float64(len(open)), filesIn(h.data),
		m[usedBytes]}}, nil
}

// pid returns the ID of the head's process; 0: it does not run.
func (h *head) pid() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.run == nil {
		return 0
	}
	return h.run.PID()
}

// anonymous returns the resident memory of a process without that of files: the store's file is mapped.
func anonymous(pid int) (float64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	_, rest, found := strings.Cut(string(status), "RssAnon:")
	if !found {
		return 0, fmt.Errorf("process %d has no RssAnon", pid)
	}
	kib, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
	return kib * 1024, err
}

func filesIn(dir string) (n float64) {
	_ = filepath.WalkDir(dir, func(_ string, _ fs.DirEntry, err error) error { // files come and go
		if err == nil {
			n++
		}
		return nil
	})
	return n
}

// lows are the least values of a quarter, and the workflows that had ended in its middle.
type lows struct {
	runs   int
	values []float64
}

func lowsOf(part []sample) lows {
	l := lows{part[len(part)/2].runs, slices.Clone(part[0].values)}
	for _, s := range part {
		for i, v := range s.values {
			l.values[i] = min(l.values[i], v)
		}
	}
	return l
}

// quarters returns the least values of the third and the last quarter.
func quarters(samples []sample) (third, last lows, err error) {
	const least = 12
	if len(samples) < least {
		return third, last, fmt.Errorf("%d samples are too few", len(samples))
	}
	n := len(samples) / 4
	return lowsOf(samples[2*n : 3*n]), lowsOf(samples[3*n:]), nil
}

// rising returns the measures that are not flat.
func rising(third, last lows) (all []string) {
	runs := float64(last.runs - third.runs)
	for i, m := range measures {
		limit := third.values[i]*(1+m.percent/100) + m.constant + m.perRun*runs
		if last.values[i] > limit {
			all = append(all, fmt.Sprintf("%s: %.1f %s in the third quarter, %.1f in the last one, and %.0f workflows; "+
				"the limit is %.1f", m.name, third.values[i]/m.unit, m.of, last.values[i]/m.unit, runs, limit/m.unit))
		}
	}
	return all
}

// addToProfile adds a run to the page.
func addToProfile(page, version string, took time.Duration, runs, restarts int, third, last lows) error {
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	row := fmt.Sprintf("| %s | %s | %s | %d | %d |", time.Now().UTC().Format("2006-01-02 15:04"), version,
		took.Round(time.Second), runs, restarts)
	for i, m := range measures {
		row += fmt.Sprintf(" %.4g, %.4g |", third.values[i]/m.unit, last.values[i]/m.unit)
	}
	flat := "yes"
	if len(rising(third, last)) > 0 {
		flat = "no"
	}
	return os.WriteFile(page, append(text, row+" "+flat+" |\n"...), 0o644)
}
