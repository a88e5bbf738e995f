package installer

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/agent/installer/journal"
)

// BenchmarkRun is one agent with five actions that do nothing and a reboot: what the agent itself costs. The time of
// one boundary between two actions is reported separately.
func BenchmarkRun(b *testing.B) {
	for name, path := range map[string]string{"memory": "", "journal": filepath.Join(b.TempDir(), "journal")} {
		b.Run(name, func(b *testing.B) {
			var actions []trivet.Action
			for i := range 5 {
				actions = append(actions, act(fmt.Sprintf("noop-%d", i)))
			}
			var j *journal.Journal
			if path != "" {
				var err error
				if j, err = journal.Open(path); err != nil {
					b.Fatal(err)
				}
				defer j.Close()
			}
			d := &doer{}
			var boundaries float64
			for i := range b.N {
				h := newHead(append(actions, reboot)...)
				h.epoch = int64(i + 1)
				c := config(h, d)
				c.Journal = j
				if _, err := Run(b.Context(), c); err != nil {
					b.Fatal(err)
				}
				boundaries += float64(d.last["noop-4"].Sub(d.last["noop-0"])) / 4
			}
			b.ReportMetric(boundaries/float64(b.N), "ns/boundary")
		})
	}
}
