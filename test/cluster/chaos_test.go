package cluster

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// round is about how long faults are done to one site. Then all is checked, and another one begins: what a checker has to
// explain stays small, and every round replays by its own seed.
const round = 150 * time.Second

// TestChaos does faults by chance for as long as CHAOS_DURATION says, in rounds, and adds each to the record in docs/chaos.md.
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
	said, err := exec.CommandContext(t.Context(), program(t), "version").Output()
	if err != nil {
		t.Fatal(err)
	}
	version, _, _ := strings.Cut(strings.TrimPrefix(string(said), "trivet "), "\n")
	path := filepath.Join(t.TempDir(), "trivet")
	if err := build(t.Context(), path, version, ""); err != nil {
		t.Fatal(err)
	}
	return path
}

// play is one round.
func play(t *testing.T, seed uint64, faults time.Duration, clocked func() string) {
	t.Logf("replay with: CHAOS_SEED=%d make chaos DURATION=%s", seed, faults)
	m := mixOf(seed)
	p := three(t)
	p.lossy = m.lossy
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
		if err := tr.suffer(t.Context(), tr.choose(m.kinds)); err != nil {
			tr.history.trouble("fault", err)
			break
		}
		nap(t.Context(), m.rest/4+time.Duration(tr.dice.Int64N(int64(m.rest))))
	}
	wrong := tr.end(t)
	for _, err := range wrong {
		t.Error(err)
	}
	if book := os.Getenv("CHAOS_RECORD"); book != "" {
		if err := enter(book, &tr.history.History, wrong); err != nil {
			t.Error(err)
		}
	}
}

// mix is what a round is made of.
type mix struct {
	kinds          []kind
	rest           time.Duration // how long all is well between two faults: a quarter of it, and up to all of it more
	lossy, clocked bool          // what the site is like
}

// mixOf gives the round of a seed. They take turns: all there is, also clocks and a small disk; kills, as many as a site gets
// over; all there is, and power cuts.
func mixOf(seed uint64) mix {
	switch seed % 3 {
	case 0:
		return mix{kinds: slices.Concat(kinds, smallDisk, ownClocks), rest: 1600 * time.Millisecond, clocked: true}
	case 1:
		return mix{kinds: slices.Concat(kinds, lossyDisks), rest: 1600 * time.Millisecond, lossy: true}
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
