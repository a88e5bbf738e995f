package cluster

import (
	"fmt"
	"os"
	"strings"
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
	seed := seedOf(t)
	for began := time.Now(); time.Since(began) < duration; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { play(t, seed, min(round, duration)) })
	}
}

// play is one round.
func play(t *testing.T, seed uint64, faults time.Duration) {
	t.Logf("replay with: CHAOS_SEED=%d make chaos DURATION=%s", seed, faults)
	tr := begin(t, seed)
	m := mixOf(seed)
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
	kinds []kind
	rest  time.Duration // how long all is well between two faults: a quarter of it, and up to all of it more
}

// mixOf gives the round of a seed: of an even one, all there is; of an odd one, kills, as many as a site gets over.
func mixOf(seed uint64) mix {
	if seed%2 == 0 {
		return mix{kinds, 1600 * time.Millisecond}
	}
	var kills []kind
	for _, k := range kinds {
		if strings.HasPrefix(k.name, "kill") {
			k.hold = min(k.hold, time.Second)
			kills = append(kills, k)
		}
	}
	return mix{kills, 600 * time.Millisecond}
}
