package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/trivet-project/trivet/internal/testhead"
)

func TestMain(m *testing.M) {
	var err error
	status := 1
	switch {
	case isRack():
		if err = runRack(); err == nil {
			status = 0
		}
	case isHostile():
		err = runHostile()
	case !isInside():
		status, err = goInside()
	default:
		if err = setUp(); err == nil {
			status = m.Run()
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(status)
}

// newHeads starts a site's heads.
func newHeads(t *testing.T, h *history, p plan) *site {
	t.Helper()
	s, err := newSite(t.TempDir(), p, h)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.close)
	ctx, cancel := context.WithTimeout(t.Context(), 2*testhead.Timeout)
	defer cancel()
	if err := s.growTo(ctx, p.heads); err != nil {
		t.Fatal(err)
	}
	return s
}

// seedOf returns the seed of this run.
func seedOf(t *testing.T) uint64 {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("CHAOS_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("CHAOS_SEED=%d", seed)
	return seed
}

// three is the ordinary site: three heads under load.
func three(t *testing.T) plan { return plan{program: testhead.Program(t), heads: 3, load: ordinary} }

// begin starts a site under load.
func begin(t *testing.T, seed uint64, p plan) *trial {
	t.Helper()
	h := newHistory(seed)
	s := newHeads(t, h, p)
	version, err := s.trivet(t.Context(), "version")
	if err != nil {
		t.Fatal(err)
	}
	h.Version, _, _ = strings.Cut(strings.TrimPrefix(version, "trivet "), "\n")
	l, err := startLoad(t.Context(), s, h, p.load)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { keep(t, s) })
	return &trial{site: s, load: l, dice: rand.New(rand.NewPCG(seed, 0))}
}

// end ends the load and returns the violations in its history.
func (tr *trial) end(t *testing.T) []error {
	t.Helper()
	err := tr.load.stop(t.Context())
	h := &tr.history.History
	wrong := h.check()
	if err != nil {
		wrong = append(wrong, err)
	}
	t.Log(h.summary())
	return wrong
}

// keep saves the history and the logs of a run in the directory CHAOS_KEEP.
func keep(t *testing.T, s *site) {
	dir := os.Getenv("CHAOS_KEEP")
	if dir == "" {
		return
	}
	dir = filepath.Join(dir, fmt.Sprint(s.history.Seed))
	if err := errors.Join(os.MkdirAll(dir, 0o755), s.history.save(filepath.Join(dir, "history.json"))); err != nil {
		t.Log(err)
	}
	for _, pattern := range []string{"*.log", "machines/*.ledger"} {
		files, _ := filepath.Glob(s.path(pattern))
		for _, file := range files {
			if text, err := os.ReadFile(file); err == nil {
				_ = os.WriteFile(filepath.Join(dir, filepath.Base(file)), text, 0o644)
			}
		}
	}
	t.Logf("history and logs are in %s", dir)
}

// Heads are killed one by one, the leader too, are stopped, cut off, have a long link, and are all killed at once,
// under load.
func TestFaultsUnderLoad(t *testing.T) {
	injectAll(t, three(t), "kill the leader", "kill", "stop the leader", "cut off the leader", "delay frames",
		"kill all at once")
}

// Each kind of fault that any site can have is injected once.
func TestSoakFaultsUnderLoad(t *testing.T) {
	soak(t)
	var all []string
	for _, k := range kinds {
		all = append(all, k.name)
	}
	injectAll(t, three(t), all...)
}

// The power of one head and of all fails, and with it all that was not synced is lost.
func TestPowerCutsUnderLoad(t *testing.T) {
	p := three(t)
	p.lossy = true
	injectAll(t, p, "cut the power of a head", "cut the power of all", "cut the power of all")
}

// BMCs are broken in each way, under load.
func TestSoakBMCsUnderLoad(t *testing.T) {
	soak(t)
	p := three(t)
	p.load.managed = 1
	var all []string
	for _, k := range brokenBMCs {
		all = append(all, k.name)
	}
	injectAll(t, p, all...)
}

// The store is filled up to its quota under load, and recovers by itself.
func TestSoakFullStoreUnderLoad(t *testing.T) {
	soak(t)
	p := three(t)
	p.quota = smallQuota
	injectAll(t, p, "fill the store")
}

// Clocks are changed by minutes under load, and heads start with wrong clocks. In make test, a clock head of test/e2e
// does that.
func TestSoakClocksUnderLoad(t *testing.T) {
	soak(t)
	p := three(t)
	p.program = filepath.Join(t.TempDir(), "trivet")
	if err := buildWithClock(t.Context(), p.program, "own-clock"); err != nil {
		t.Fatal(err)
	}
	injectAll(t, p, slices.Repeat([]string{"set a clock"}, 4)...)
}

// soak skips a test that runs in make soak only.
func soak(t *testing.T) {
	t.Helper()
	if os.Getenv("TRIVET_SOAK") == "" {
		t.Skip("runs in make soak")
	}
}

// injectAll injects faults into a site, one after the other.
func injectAll(t *testing.T, p plan, faults ...string) {
	if testing.Short() {
		t.Skip("takes minutes")
	}
	tr := begin(t, seedOf(t), p)
	for _, name := range faults {
		nap(t.Context(), 2*time.Second)
		if err := tr.inject(t.Context(), named(name)); err != nil {
			t.Error(err)
		}
	}
	nap(t.Context(), 2*time.Second)
	for _, err := range tr.end(t) {
		t.Error(err)
	}
}
