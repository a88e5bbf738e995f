package cluster

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"math/rand/v2"

	"github.com/trivet-project/trivet/internal/seeded"
)

// The loads that seeded bugs need: programs that write, clients that ask for addresses, runs, deadlines.
var (
	programs = size{writers: 8, watchers: 2}
	clients  = size{writers: 1, watchers: 1, clients: 2}
	runs     = size{writers: 1, watchers: 1, racks: 1, machines: 3, loops: 3}
	waits    = size{writers: 1, watchers: 1, late: 1}
)

// seeds are a bug for each guarantee, and what brings it to light.
var seeds = []struct {
	bug    seeded.Bug
	want   error
	heads  int
	load   size
	faults []string
	// The load lasts at least for so long, and what has begun may then take so much longer.
	lasts, settles time.Duration
}{
	{seeded.WriteLost, ErrWriteLost, 3, programs, []string{"kill the leader", "kill the leader"}, 0, settled},
	{seeded.StaleRead, ErrStaleRead, 3, programs, []string{"cut off a head"}, 0, settled},
	{seeded.WatchSkipped, ErrWatchSkipped, 1, programs, nil, 3 * time.Second, settled},
	{seeded.WatchRepeated, ErrWatchRepeated, 1, programs, []string{"kill"}, 0, settled},
	{seeded.WatchReordered, ErrWatchReordered, 1, programs, nil, 3 * time.Second, settled},
	{seeded.AddressTwice, ErrAddressTwice, 1, clients, nil, 3 * time.Second, settled},
	{seeded.MachineTwice, ErrMachineTwice, 1, runs, nil, 2 * time.Second, 3 * time.Second},
	{seeded.ActionTwice, ErrActionTwice, 1, runs, slices.Repeat([]string{"reset a machine"}, 8), 0, 6 * time.Second},
	{seeded.RunStuck, ErrRunStuck, 1, runs, nil, time.Second, 6 * time.Second},
	{seeded.OldEpoch, ErrOldEpoch, 1, runs, nil, 5 * time.Second, 3 * time.Second},
	{seeded.DeadlineEarly, ErrDeadlineEarly, 1, waits, nil, 7 * time.Second, time.Second},
	{seeded.DeadlineNever, ErrDeadlineLate, 1, waits, nil, lateAfter + 3*time.Second, time.Second},
}

// The checker finds in real programs what it is there for: each guarantee has a bug that breaks it.
func TestSeededBugs(t *testing.T) {
	if testing.Short() {
		t.Skip("takes minutes")
	}
	program := buildSeeded(t)
	for _, s := range seeds {
		t.Run(string(s.bug), func(t *testing.T) {
			t.Setenv(seeded.Env, string(s.bug))
			tr := beginWith(t, program, s.heads, s.load, seedOf(t))
			tr.load.settled = s.settles
			for _, f := range s.faults {
				nap(t.Context(), time.Second)
				if err := tr.suffer(t.Context(), named(f)); err != nil {
					t.Log(err) // a bug may keep it from healing
				}
			}
			nap(t.Context(), s.lasts)
			found := tr.end(t)
			if !slices.ContainsFunc(found, func(err error) bool { return errors.Is(err, s.want) }) {
				t.Errorf("not found: %v; found: %v", s.want, errors.Join(found...))
			}
		})
	}
}

// beginWith starts a site of heads that are a program, under a load.
func beginWith(t *testing.T, program string, heads int, n size, seed uint64) *trial {
	t.Helper()
	h := newHistory(seed)
	s, err := newSite(program, t.TempDir(), h)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.close)
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	if err := s.growTo(ctx, heads); err != nil {
		t.Fatal(err)
	}
	l, err := startLoad(t.Context(), s, h, n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { keep(t, s) })
	return &trial{site: s, load: l, dice: rand.New(rand.NewPCG(seed, 0))}
}

// buildSeeded builds the program with the bugs, as the Makefile builds the one without.
func buildSeeded(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "trivet")
	c := exec.Command("go", "build", "-tags", "seeded", "-trimpath", "-ldflags", "-s -w -X main.version=seeded", "-o", path, "./cmd/trivet")
	c.Dir, c.Env = "../..", append(os.Environ(), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("build with seeded bugs: %v\n%s", err, out)
	}
	return path
}

// The program that people get has no trace of the bugs.
func TestNoSeededBugs(t *testing.T) {
	text, err := os.ReadFile(program(t))
	if err != nil {
		t.Fatal(err)
	}
	traces := []string{seeded.Env, "internal/seeded"}
	for _, s := range seeds {
		traces = append(traces, string(s.bug))
	}
	for _, trace := range traces {
		if bytes.Contains(text, []byte(trace)) {
			t.Errorf("it contains %q", trace)
		}
	}
}
