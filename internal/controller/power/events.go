package power

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/bmc"
)

// Bounds of the event log that is kept with a failure.
const (
	maxEvents     = 20
	maxEventBytes = 4 << 10
	// eventsTimeout bounds the reading: the worker is needed for other machines.
	eventsTimeout = 10 * time.Second
	// recentEnd is how long after the end of its run the machine's event log is read.
	recentEnd = 10 * time.Minute
)

// clockMargin is how far the clock of a BMC may be off.
const clockMargin = 2 * time.Minute

// keepEvents keeps what the BMC observed during the last run of a machine that was at fault, and has just been powered
// off. That is recorded before, so nothing waits for it, and it ends where the machine has another intent. A log that
// cannot be read or kept is no error: the power-off is not carried out again for it.
func (c *Controller) keepEvents(ctx context.Context, client bmc.Client, m *trivet.Machine, done trivet.PowerIntent) {
	log, ok := client.(bmc.EventLog)
	w := c.failedRun(m)
	if !ok || w == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, eventsTimeout)
	defer cancel()
	ctx, stop := c.untilNext(ctx, m.Name, done)
	defer stop()
	events, _ := log.Events(ctx, maxEvents) // those that were read before an error are kept
	if text := eventText(events, w.Status.Started, time.Now()); text != "" {
		c.Fleet.KeepEventLog(ctx, w.FullName(), w.UID, text)
	}
}

// failedRun returns the last run of a machine, if it has just failed by the machine's fault; nil otherwise.
func (c *Controller) failedRun(m *trivet.Machine) *trivet.Workflow {
	w, err := c.Tables.Workflows.GetShared(trivet.Resolve("", m.Status.Workflow))
	if err != nil || w.Spec.MachineUID != m.UID || time.Since(w.Status.Ended) > recentEnd {
		return nil
	}
	failure := w.Status.Failure
	if failure == nil || failure.Type != trivet.FaultMachine || failure.EventLog != "" {
		return nil
	}
	return w
}

// eventText returns the entries since a time, one a line. By a clock that is wrong or not set it is not known which
// these are: then it says so, and returns the last ones.
func eventText(events bmc.Events, since, now time.Time) string {
	entries, note := events.Entries, clockNote(events, now)
	if note == "" {
		entries = entriesSince(entries, since.Add(-clockMargin))
	}
	var lines []string
	size := len(note)
	for _, e := range slices.Backward(entries) {
		at := "no time            "
		if !e.Time.IsZero() {
			at = e.Time.UTC().Format(time.DateTime)
		}
		line := at + " " + e.Text
		if size += len(line) + 1; size > maxEventBytes || len(lines) == maxEvents {
			break
		}
		lines = append(lines, line)
	}
	if note != "" && len(lines) > 0 {
		lines = append(lines, note)
	}
	slices.Reverse(lines)
	return strings.Join(lines, "\n")
}

// entriesSince returns the entries after the last one that is earlier than a time.
func entriesSince(entries []bmc.Entry, since time.Time) []bmc.Entry {
	for i, e := range slices.Backward(entries) {
		if !e.Time.IsZero() && e.Time.Before(since) {
			return entries[i+1:]
		}
	}
	return entries
}

// clockNote says what is wrong with the clock of a BMC; empty: it is right, as far as that is known.
func clockNote(events bmc.Events, now time.Time) string {
	dated := slices.ContainsFunc(events.Entries, func(e bmc.Entry) bool { return !e.Time.IsZero() })
	if events.Now.IsZero() && !dated {
		return "[the clock of the BMC is not set; these are its last entries]"
	}
	off := events.Now.Sub(now)
	if events.Now.IsZero() {
		off = 0
		for _, e := range events.Entries { // an entry in the future is as good
			off = max(off, e.Time.Sub(now))
		}
	}
	direction := "ahead"
	if off < 0 {
		off, direction = -off, "behind"
	}
	if off <= clockMargin {
		return ""
	}
	return fmt.Sprintf("[the clock of the BMC is %s %s; these are its last entries]", off.Round(time.Second), direction)
}
