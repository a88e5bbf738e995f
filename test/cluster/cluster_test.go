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
)

// patience bounds every wait for something that must come.
const patience = 60 * time.Second

func TestMain(m *testing.M) {
	var err error
	status := 1
	switch {
	case isRack():
		if err = runRack(); err == nil {
			status = 0
		}
	case !isInside():
		status, err = goInside()
	default:
		if err = furnish(); err == nil {
			status = m.Run()
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(status)
}

func program(t *testing.T) string {
	t.Helper()
	path := os.Getenv("TRIVET")
	if path == "" {
		t.Fatal("TRIVET is not set: run make test, or make build && TRIVET=$PWD/bin/trivet go test ./test/cluster")
	}
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// newHeads starts a site's heads.
func newHeads(t *testing.T, h *history, p plan) *site {
	t.Helper()
	s, err := newSite(t.TempDir(), p, h)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.close)
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	if err := s.growTo(ctx, p.heads); err != nil {
		t.Fatal(err)
	}
	return s
}

// seedOf gives the seed of this run.
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

// three is what people have: three heads under load.
func three(t *testing.T) plan { return plan{program: program(t), heads: 3, load: ordinary} }

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

// end lets the load come to its end and gives what was seen and what is wrong with that.
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

// keep saves what a run has left, where CHAOS_KEEP names a folder.
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

// Heads are killed one by one, the leader too, stand still, are cut off, are far away and start all at once, while everything
// goes on.
func TestFaultsUnderLoad(t *testing.T) {
	suffered(t, three(t), "kill the leader", "kill", "kill the leader", "stop the leader", "cut off the leader", "delay frames", "kill all at once")
}

// The power goes, of one head and of all, and with it all that was not synced.
func TestPowerCutsUnderLoad(t *testing.T) {
	p := three(t)
	p.lossy = true
	suffered(t, p, "cut the power of a head", "cut the power of all", "cut the power of all")
}

// Clocks are set by minutes while everything goes on, and heads start with clocks that are off.
func TestClocksUnderLoad(t *testing.T) {
	p := three(t)
	p.program = filepath.Join(t.TempDir(), "trivet")
	if err := build(t.Context(), p.program, "own-clock", ""); err != nil {
		t.Fatal(err)
	}
	suffered(t, p, slices.Repeat([]string{"set a clock"}, 4)...)
}

// suffered does faults to a site, one after the other.
func suffered(t *testing.T, p plan, faults ...string) {
	if testing.Short() {
		t.Skip("takes minutes")
	}
	tr := begin(t, seedOf(t), p)
	for _, name := range faults {
		nap(t.Context(), 2*time.Second)
		if err := tr.suffer(t.Context(), named(name)); err != nil {
			t.Error(err)
		}
	}
	nap(t.Context(), 2*time.Second)
	for _, err := range tr.end(t) {
		t.Error(err)
	}
}
