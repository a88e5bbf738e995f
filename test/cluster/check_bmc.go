package cluster

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/bmc"
)

// How far apart the test and a BMC may see one thing: a watch may report a change late, and what was allowed when it
// was sent may happen a moment later.
const (
	reportedLate = 20 * time.Second
	doneLate     = time.Second
)

// How many changes of one machine, and of all records, there may be while BMCs are broken: at first, and by second.
const (
	machineBurst, machineRate = 20, 10
	storeBurst, storeRate     = 200, 500
)

// checkBMCs checks what heads did with the machines that have BMCs.
func (h *History) checkBMCs(r *report) {
	h.checkShared(r)
	for _, machine := range h.Managed {
		h.checkCycles(r, machine)
		h.checkPower(r, machine)
	}
	for _, f := range h.Faults {
		if strings.HasPrefix(f.Kind, "BMCs") && f.Last > f.First && f.First > 0 {
			h.checkRate(r, f)
		}
	}
}

// use is the time in which a head sent requests over one connection.
type use struct {
	machine, head string
	from, to      time.Duration
}

// checkShared checks that one head at a time uses a BMC.
func (h *History) checkShared(r *report) {
	uses := map[string]*use{}
	for _, c := range h.Commands {
		at := h.since(c)
		if c.Request == "" || strings.HasPrefix(c.Request, "DELETE") || h.rackFails(at) {
			continue
		}
		id := c.Machine + " " + c.From
		if uses[id] == nil {
			head, _, _ := strings.Cut(c.From, ":")
			uses[id] = &use{c.Machine, head, at, at}
		}
		uses[id].to = at
	}
	byMachine := map[string][]use{}
	for _, u := range uses {
		byMachine[u.machine] = append(byMachine[u.machine], *u)
	}
	for machine, all := range byMachine {
		slices.SortFunc(all, func(a, b use) int { return int(a.from - b.from) })
		var last use // of those so far, the one that ends last
		for _, u := range all {
			if last.head != "" && last.head != u.head && u.from < last.to {
				r.add(ErrBMCShared, "%s: %s from %s to %s, and %s from %s to %s",
					machine, last.head, last.from, last.to, u.head, u.from, u.to)
			}
			if u.to > last.to {
				last = u
			}
		}
	}
}

// since is when a BMC received or did something.
func (h *History) since(c command) time.Duration { return time.Duration(c.At - h.Began) }

// rackFails reports whether BMCs received requests later than heads sent them.
func (h *History) rackFails(at time.Duration) bool {
	return slices.ContainsFunc(h.Faults, func(f fault) bool {
		return strings.Contains(f.Kind, "rack") && f.From <= at && at <= f.To+30*time.Second
	})
}

// span is a time in which a machine may be powered off: its record requests that.
type span struct{ from, to time.Duration }

// checkCycles checks that a machine was powered off only while its record requested that, and never quarantined.
func (h *History) checkCycles(r *report, machine string) {
	spans := h.offRequested(machine)
	for _, c := range h.Commands {
		at := h.since(c)
		covers := func(s span) bool { return s.from-reportedLate <= at && at <= s.to+doneLate }
		if c.Machine == machine && c.Power == bmc.Off && !h.rackFails(at) && !slices.ContainsFunc(spans, covers) {
			r.add(ErrPowerCycled, "%s was powered off by %s at %s", machine, c.From, at)
		}
	}
	for _, c := range h.Whole {
		if c.Kind == "Machine" && c.Name == machine && c.State == string(trivet.MachineQuarantined) {
			r.add(ErrQuarantined, "%s at revision %d", machine, c.Revision)
		}
	}
}

// offRequested returns the times in which a machine's record had an intent to power it off, as watches reported it.
func (h *History) offRequested(machine string) (spans []span) {
	reported := map[string]time.Duration{}
	for _, name := range slices.Sorted(maps.Keys(h.Feeds)) {
		for _, c := range h.Feeds[name] {
			if at, ok := reported[c.id()]; !ok || c.At < at {
				reported[c.id()] = c.At
			}
		}
	}
	open := false
	for _, c := range h.Whole {
		if c.Kind != "Machine" || c.Name != machine {
			continue
		}
		wanted := c.Intent == "off" || c.Intent == "cycle"
		switch at := reported[c.id()]; {
		case wanted && !open:
			spans = append(spans, span{at, forever - doneLate})
		case !wanted && open:
			spans[len(spans)-1].to = at
		}
		open = wanted
	}
	return spans
}

// checkPower checks that at the end nothing remains to be done, and that the record of a machine says what is true.
func (h *History) checkPower(r *report, machine string) {
	var record change
	for _, c := range h.Whole {
		if c.Kind == "Machine" && c.Name == machine {
			record = c
		}
	}
	truth := bmc.Off // as it began
	for _, c := range h.Commands {
		if c.Machine == machine && c.Power != "" {
			truth = c.Power
		}
	}
	switch {
	case record.Intent != "":
		r.add(ErrPowerWrong, "%s still has the intent %s", machine, record.Intent)
	case record.Power != "" && record.Power != string(truth):
		r.add(ErrPowerWrong, "%s is %s, and by its record %s", machine, truth, record.Power)
	}
}

// checkRate checks that broken BMCs do not make heads write often.
func (h *History) checkRate(r *report, f fault) {
	seconds := (f.To - f.From).Seconds()
	if n := float64(f.Last - f.First); n > storeBurst+storeRate*seconds {
		r.add(ErrWriteRate, "%.0f revisions in %.1f s of %s (%s)", n, seconds, f.Kind, f.What)
	}
	changes := map[string]int{}
	for _, c := range h.Whole {
		if c.Kind == "Machine" && f.First < c.Revision && c.Revision <= f.Last {
			changes[c.Name]++
		}
	}
	for _, machine := range h.Managed {
		if n := changes[machine]; float64(n) > machineBurst+machineRate*seconds {
			r.add(ErrWriteRate, "%d changes of %s in %.1f s of %s (%s)", n, machine, seconds, f.Kind, f.What)
		}
	}
}
