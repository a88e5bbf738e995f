package cluster

import (
	"bufio"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"
)

// The record is a page whose lines are the rounds that were run. Its totals are computed from those lines each time,
// so that only lines are ever added.

// entry is one round in the record.
type entry struct {
	Date       string         `json:"date"`
	Seed       uint64         `json:"seed"`
	Version    string         `json:"version,omitempty"` // of the heads
	Seconds    int            `json:"seconds"`
	Faults     map[string]int `json:"faults"`
	Kills      int            `json:"kills"` // of heads
	Operations int            `json:"operations"`
	Acked      int            `json:"acked"`
	Changes    int            `json:"changes"` // reported by all watches
	Leases     int            `json:"leases"`
	Boots      int            `json:"boots"`
	Workflows  int            `json:"workflows"`
	Assisted   int            `json:"assisted"`
	// Load is the computer's load average at the end: gaps of a busy one are not significant.
	Load string `json:"load"`
	// In milliseconds: a write gap for each kill of the leader, a boot gap for each fault.
	WriteGaps  []int64  `json:"writeGaps"`
	BootGaps   []int64  `json:"bootGaps"`
	Violations []string `json:"violations,omitempty"`
}

func newEntry(h *History, wrong []error) entry {
	e := entry{
		Date: time.Now().UTC().Format("2006-01-02 15:04"), Seed: h.Seed, Version: h.Version,
		Seconds: int(h.Took.Seconds()), Faults: map[string]int{},
		Operations: len(h.Ops), Changes: len(h.Whole) * len(h.Feeds), Leases: len(h.Leases), Boots: len(h.Boots),
		Assisted: len(h.Assisted),
	}
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		e.Load, _, _ = strings.Cut(string(text), " ")
	}
	for _, o := range h.Ops {
		if o.Outcome == done {
			e.Acked++
		}
	}
	for _, w := range h.Waits {
		if w.Deadline == 0 && w.Return > 0 {
			e.Workflows++
		}
	}
	writes := h.writes()
	for _, f := range h.Faults {
		e.Faults[f.Kind]++
		if strings.HasPrefix(f.Kind, "kill") {
			e.Kills += len(strings.Fields(f.What))
		}
		if f.Kind == "kill the leader" {
			e.WriteGaps = append(e.WriteGaps, gapOf(f, writes).Milliseconds())
		}
		e.BootGaps = append(e.BootGaps, gapOf(f, h.Boots).Milliseconds())
	}
	for _, err := range wrong {
		text, _, _ := strings.Cut(err.Error(), "\n")
		e.Violations = append(e.Violations, text[:min(len(text), 300)])
	}
	return e
}

const pageHead = `# Chaos runs

Three heads as processes in network namespaces of their own, under load, with random faults:
` + "`make chaos DURATION=20m`" + ` adds to this page. Rounds of three sorts alternate: all faults, with clocks that
jump by minutes and a small disk that is slow or full; all faults, and power cuts after which a head's disk has lost
what was not synced; kills only. (The first twenty rounds had no power cuts, long links and clocks; the first 36 no BMCs
and no small store.) A round is replayed, as far as timing allows, by
` + "`CHAOS_SEED=<seed> make chaos DURATION=150s`" + `. [Testing](testing.md) lists what else can be set, such as the
faults to inject.

A write gap is the longest time without an acknowledged write that a program with the SDK saw around a kill -9 of the
leader, the head's return included; a boot gap the longest time in which a known machine did not get from DHCP to its
script, around any fault. The machines of one rack have simulated BMCs, which are broken for a while: they answer later
than a head waits, with errors or with garbage, drop sessions, do nothing, or hang up. Those of the other have none: one
that has not booted after 15 s, mostly because a head whose copy was behind directed it to its disk, is powered on again
as an operator would; such runs are called assisted. The store of the rounds with all faults is small (64 MiB): it is
filled with large records until it refuses them, and recovers by itself after their deletion. The causes of violations
are in the [track record](track-record.md). In one round, seed 1795668575335652260, the checker itself fell behind: the
three violations that are counted of it are of its own history, which was cut. Seed 1795694475018258538 is one of seven
rounds with 20,000 machines: a head whose copy was behind gave a machine a second address, since the transaction that
assigned one compared the address and not what else its port had.

`

// addToRecord adds a round to the page.
func addToRecord(path string, h *History, wrong []error) error {
	entries, err := readRecord(path)
	if err != nil {
		return err
	}
	entries = append(entries, newEntry(h, wrong))
	var b strings.Builder
	b.WriteString(pageHead)
	b.WriteString(inAll(entries))
	b.WriteString("\n## Rounds\n\nOne line of JSON each, the oldest first.\n\n```json\n")
	for _, e := range entries {
		line, err := json.Marshal(e)
		if err != nil {
			return err
		}
		b.Write(append(line, '\n'))
	}
	b.WriteString("```\n")
	return os.WriteFile(path, []byte(b.String()), 0o644)
}

// readRecord returns the rounds of a page; none if there is no page.
func readRecord(path string) (entries []entry, err error) {
	f, err := os.Open(path)
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Buffer(nil, 1<<20); lines.Scan(); {
		if !strings.HasPrefix(lines.Text(), "{") {
			continue
		}
		var e entry
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		entries = append(entries, e)
	}
	return entries, lines.Err()
}

// inAll returns the totals of the rounds.
func inAll(entries []entry) string {
	var sum entry
	faults, bad := map[string]int{}, 0
	var write, boot gaps
	for _, e := range entries {
		sum.Seconds, sum.Kills = sum.Seconds+e.Seconds, sum.Kills+e.Kills
		sum.Operations, sum.Acked = sum.Operations+e.Operations, sum.Acked+e.Acked
		sum.Changes, sum.Leases, sum.Boots = sum.Changes+e.Changes, sum.Leases+e.Leases, sum.Boots+e.Boots
		sum.Workflows, sum.Assisted = sum.Workflows+e.Workflows, sum.Assisted+e.Assisted
		for kind, n := range e.Faults {
			faults[kind] += n
		}
		write, boot = append(write, millis(e.WriteGaps)...), append(boot, millis(e.BootGaps)...)
		if len(e.Violations) > 0 {
			bad++
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "| In all | |\n|---|---|\n| Rounds, time | %d, %s |\n",
		len(entries), time.Duration(sum.Seconds)*time.Second)
	for _, g := range guarantees {
		fmt.Fprintf(&b, "| Rounds with: %s | %d |\n", g, roundsOf(g, entries))
	}
	fmt.Fprintf(&b, "| Rounds with a violation | %d |\n| Heads killed by kill -9 | %d |\n", bad, sum.Kills)
	for _, kind := range slices.Sorted(maps.Keys(faults)) {
		fmt.Fprintf(&b, "| Fault: %s | %d |\n", kind, faults[kind])
	}
	fmt.Fprintf(&b, "| Operations, acknowledged | %d, %d |\n| Changes reported by watches | %d |\n",
		sum.Operations, sum.Acked, sum.Changes)
	fmt.Fprintf(&b, "| Addresses acknowledged, boots | %d, %d |\n| Workflows, assisted | %d, %d |\n",
		sum.Leases, sum.Boots, sum.Workflows, sum.Assisted)
	fmt.Fprintf(&b, "| Write gap at a kill of the leader | %s |\n| Boot gap at any fault | %s |\n", write, boot)
	return b.String()
}

// roundsOf counts the rounds that violated a guarantee.
func roundsOf(guarantee error, entries []entry) (n int) {
	for _, e := range entries {
		if slices.ContainsFunc(e.Violations, func(v string) bool { return strings.HasPrefix(v, guarantee.Error()) }) {
			n++
		}
	}
	return n
}

func millis(ms []int64) (out gaps) {
	for _, n := range ms {
		out = append(out, time.Duration(n)*time.Millisecond)
	}
	return out
}
