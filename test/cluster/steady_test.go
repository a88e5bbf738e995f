package cluster

import (
	"fmt"
	"os"
	"testing"
	"time"
)

// Under steady writes the leader changes again and again, slow learners get snapshots, and history is compacted, while
// a watch is resumed all the time. No acknowledged write is lost, each watch reports every change once and in order,
// and the heads end with the same records. Everything is repeated in make soak.
func TestChangesUnderSteadyWrites(t *testing.T) {
	if testing.Short() {
		t.Skip("takes minutes")
	}
	leaders, learners := 2, 1
	if os.Getenv("TRIVET_SOAK") != "" {
		leaders, learners = 50, 10
	}
	p := three(t)
	p.large = true // a head that was down gets the whole store
	p.quota, p.load = fmt.Sprint(compactionQuota), size{watchers: 1, steady: steadyWriters, resumers: 2}
	tr := begin(t, seedOf(t), p)
	faults := []kind{compaction}
	for i := range leaders {
		faults = append(faults, changeLeader(i))
		if i*learners/leaders != (i+1)*learners/leaders {
			faults = append(faults, slowLearner(i))
		}
	}
	for _, f := range faults {
		if err := tr.inject(t.Context(), f); err != nil {
			t.Error(err)
		}
	}
	if len(tr.history.Faults) != 1+leaders+learners {
		t.Errorf("%d faults were injected", len(tr.history.Faults))
	}
	loaded := time.Since(tr.history.began)
	for _, err := range tr.end(t) {
		t.Error(err)
	}
	writes := 0
	for _, o := range tr.history.Ops {
		if o.Outcome == done && o.Do == "write" {
			writes++
		}
	}
	t.Logf("%.0f acknowledged writes/s", float64(writes)/loaded.Seconds())
}
