package cluster

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/trivet-project/trivet/internal/testhead"
)

// round is about how long faults are injected into one site. Then all is checked, and another one begins: histories
// stay small enough for the checker, and every round is replayed by its own seed.
const round = 150 * time.Second

// TestChaos injects random faults for CHAOS_DURATION, in rounds, and adds each to the record in docs/chaos.md.
func TestChaos(t *testing.T) {
	text := os.Getenv("CHAOS_DURATION")
	if text == "" {
		t.Skip("runs by: make chaos DURATION=20m")
	}
	duration, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	clocked := sync.OnceValue(func() string { return withClock(t) })
	seed := seedOf(t)
	for began := time.Now(); time.Since(began) < duration; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { play(t, seed, min(round, duration), clocked) })
	}
}

// withClock builds the version that is tested with a clock of its own.
func withClock(t *testing.T) string {
	out, err := exec.CommandContext(t.Context(), testhead.Program(t), "version").Output()
	if err != nil {
		t.Fatal(err)
	}
	version, _, _ := strings.Cut(strings.TrimPrefix(string(out), "trivet "), "\n")
	path := filepath.Join(t.TempDir(), "trivet")
	if err := buildWithClock(t.Context(), path, version); err != nil {
		t.Fatal(err)
	}
	return path
}

// play runs one round.
func play(t *testing.T, seed uint64, faults time.Duration, clocked func() string) {
	t.Logf("replay with: CHAOS_SEED=%d make chaos DURATION=%s", seed, faults)
	m := mixOf(seed)
	p := three(t)
	p.lossy, p.quota = m.lossy, m.quota
	p.load = chaosLoad(t)
	if m.clocked {
		p.program = clocked()
	}
	tr := begin(t, seed, p)
	if only := os.Getenv("CHAOS_ONLY"); only != "" {
		m.kinds = nil
		for name := range strings.SplitSeq(only, ",") {
			m.kinds = append(m.kinds, named(name))
		}
	}
	for began := time.Now(); time.Since(began) < faults; {
		if err := tr.inject(t.Context(), tr.choose(m.kinds)); err != nil {
			tr.history.trouble("fault", err)
			break
		}
		nap(t.Context(), m.rest/4+time.Duration(tr.dice.Int64N(int64(m.rest))))
	}
	wrong := tr.end(t)
	for _, err := range wrong {
		t.Error(err)
	}
	if page := os.Getenv("CHAOS_RECORD"); page != "" {
		if err := addToRecord(page, &tr.history.History, wrong); err != nil {
			t.Error(err)
		}
	}
}

// mix is what a round is made of.
type mix struct {
	kinds          []kind
	rest           time.Duration // how long there is no fault between two: a quarter of it, and up to all of it more
	lossy, clocked bool          // properties of the site
	quota          string
}

// chaosLoad is the load of a round. The machines of one rack have BMCs. CHAOS_MACHINES is how many machine records
// there are, and CHAOS_AGENTS how many simulated machines.
func chaosLoad(t *testing.T) size {
	n := ordinary
	n.managed = 1
	if agents := number(t, "CHAOS_AGENTS"); agents > 0 {
		n.machines = max(agents/n.racks, 2)
		n.loops = n.racks * n.machines * 7 / 10 // some machines are free at any time
	}
	n.bystanders = max(number(t, "CHAOS_MACHINES")-n.racks*n.machines, 0)
	return n
}

// number returns a number from the environment; 0: it is not set.
func number(t *testing.T, name string) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return 0
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// mixOf returns the round of a seed. Three sorts alternate: all faults, with clocks and a small disk; kills, as many
// as a site survives; all faults, with power cuts.
func mixOf(seed uint64) mix {
	all := mix{kinds: slices.Concat(kinds, brokenBMCs, smallStore), rest: 1600 * time.Millisecond, quota: smallQuota}
	switch seed % 3 {
	case 0:
		all.kinds, all.clocked = slices.Concat(all.kinds, smallDisk, ownClocks), true
		return all
	case 1:
		all.kinds, all.lossy = slices.Concat(all.kinds, lossyDisks), true
		return all
	}
	var kills []kind
	for _, k := range kinds {
		if strings.HasPrefix(k.name, "kill") {
			k.hold = min(k.hold, time.Second)
			kills = append(kills, k)
		}
	}
	return mix{kinds: kills, rest: 600 * time.Millisecond}
}
