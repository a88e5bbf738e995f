package cluster

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// gaps are times in which something did not work, over many faults.
type gaps []time.Duration

func (g gaps) String() string {
	if len(g) == 0 {
		return "none"
	}
	slices.Sort(g)
	at := func(percent int) int64 { return g[min(len(g)*percent/100, len(g)-1)].Milliseconds() }
	return fmt.Sprintf("p50 %d ms, p99 %d ms, max %d ms", at(50), at(99), g[len(g)-1].Milliseconds())
}

// gapOf is the longest time without a success that began with a fault or in it.
func gapOf(f fault, successes []time.Duration) (longest time.Duration) {
	last := f.From
	for _, at := range successes {
		if at > last && last <= f.To {
			longest, last = max(longest, at-last), at
		}
	}
	return longest
}

// writes are the times at which a program with the SDK had a write acknowledged.
func (h *History) writes() (at []time.Duration) {
	for _, o := range h.Ops {
		if o.Key == pulseKey && o.Outcome == done && o.Client != final {
			at = append(at, o.Return)
		}
	}
	return at
}

// gapsBy returns write and boot gaps by kind of fault.
func (h *History) gapsBy() (write, boot map[string]gaps) {
	write, boot = map[string]gaps{}, map[string]gaps{}
	writes := h.writes()
	for _, f := range h.Faults {
		write[f.Kind] = append(write[f.Kind], gapOf(f, writes))
		boot[f.Kind] = append(boot[f.Kind], gapOf(f, h.Boots))
	}
	return write, boot
}

// summary describes the run for people.
func (h *History) summary() string {
	outcomes, runs := map[string]int{}, 0
	for _, o := range h.Ops {
		outcomes[o.Outcome]++
	}
	for _, w := range h.Waits {
		if w.Return > 0 && w.Deadline == 0 {
			runs++
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d, %s: %d operations (%d acknowledged, %d refused, %d unknown), %d changes to each of "+
		"%d watches, %d leases, %d boots, %d workflows (%d assisted)\n",
		h.Seed, h.Took.Round(time.Second), len(h.Ops), outcomes[done], outcomes[refused], outcomes[unknown],
		len(h.Whole), len(h.Feeds),
		len(h.Leases), len(h.Boots), runs, len(h.Assisted))
	write, boot := h.gapsBy()
	for _, kind := range slices.Sorted(maps.Keys(write)) {
		fmt.Fprintf(&b, "  %d x %s: write gap %s; boot gap %s\n", len(write[kind]), kind, write[kind], boot[kind])
	}
	return b.String()
}
