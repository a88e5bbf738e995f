package cluster

import (
	"os"
	"strings"
	"testing"
	"time"
)

// round is about how long faults are done to one site. Then all is checked, and another one begins: what a checker has to
// explain stays small, and every round replays by its own seed.
const round = 3 * time.Minute

// TestChaos does faults by chance for as long as CHAOS_DURATION says, and adds to the record in docs/chaos.md.
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
	book := os.Getenv("CHAOS_RECORD")
	for began := time.Now(); time.Since(began) < duration; seed++ {
		t.Run("", func(t *testing.T) {
			tr := begin(t, seed)
			for began := time.Now(); time.Since(began) < min(round, duration); {
				k := tr.choose()
				if only := os.Getenv("CHAOS_ONLY"); only != "" && !strings.Contains(only, k.name) {
					continue
				}
				if err := tr.suffer(t.Context(), k); err != nil {
					tr.history.trouble("fault", err)
					break
				}
				nap(t.Context(), time.Duration(500+tr.dice.IntN(1500))*time.Millisecond)
			}
			wrong := tr.end(t)
			for _, err := range wrong {
				t.Error(err)
			}
			if book != "" {
				if err := enter(book, &tr.history.History, wrong); err != nil {
					t.Error(err)
				}
			}
		})
	}
}
