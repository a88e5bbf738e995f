package powerstate

import (
	"errors"
	"math/rand/v2"
	"time"

	"github.com/trivet-project/trivet"
)

// Each BMC is read once in a period. Of more than 30,000 machines the period grows, as all heads together read about
// rate BMCs a second.
const (
	minPeriod = 10 * time.Minute
	rate      = 50
	// startRate is how many machines a second a head begins with that it has not read yet.
	startRate = 10
	// recheck is when a BMC is read again that failed for the first time, or reports another state than before, or was
	// used by a command: many BMCs fail once, and some report a wrong state while they start.
	recheck = time.Minute
	// maxBackoff bounds the time between two reads of a BMC that fails.
	maxBackoff = time.Hour
	// maxRetries is how many BMCs that have failed are read at once: each may take its whole timeout.
	maxRetries = 8
	// retryPause is about when one is queued again that found no slot.
	retryPause = 30 * time.Second
)

// history is what this head knows of the reads of a machine's BMC.
type history struct {
	bmc   trivet.BMC
	next  time.Time // when it is read again
	fails int       // reads that failed since the last one that did not
	seen  string    // the state that it reported once, and that the record does not have
}

// due returns for how long a machine's BMC is not read, and whether it failed the last time. The first reads of
// machines that are not new are spread over time.
func (c *Controller) due(m *trivet.Machine) (wait time.Duration, failed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.reads[m.Name]
	if h == nil || h.bmc != *m.Spec.BMC {
		first := time.Now()
		spread := min(c.period(), time.Duration(c.machines())*time.Second/startRate)
		if h == nil && time.Since(m.Created) > minPeriod && spread > 0 {
			first = first.Add(rand.N(spread))
		}
		h = &history{bmc: *m.Spec.BMC, next: first}
		c.reads[m.Name] = h
	}
	return time.Until(h.next), h.fails > 0
}

// note notes what a BMC has reported, or why it did not. It returns when it is read again, and whether that is certain
// enough for the record.
func (c *Controller) note(m *trivet.Machine, power string, cause error) (after time.Duration, certain bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.reads[m.Name]
	if h == nil {
		return 0, false
	}
	after, certain = h.note(m.Status.Power, power, cause, c.period())
	after = jitter(after)
	h.next = time.Now().Add(after)
	return after, certain
}

func (h *history) note(recorded, power string, cause error, period time.Duration) (after time.Duration, certain bool) {
	if cause != nil {
		h.fails, h.seen = h.fails+1, ""
		if h.fails == 1 {
			return recheck, isRefusal(cause)
		}
		return min(period<<min(h.fails-2, 10), max(maxBackoff, period)), true
	}
	h.fails = 0
	if recorded != "" && power != recorded && power != h.seen {
		h.seen = power
		return recheck, false
	}
	h.seen = ""
	return period, true
}

// soon has the BMC of a machine read soon, and reports whether this head reads it.
func (c *Controller) soon(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.reads[name]
	if h == nil {
		return false
	}
	h.next = time.Now().Add(recheck)
	return true
}

func (c *Controller) forget(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.reads, name)
}

// period returns the time between two reads of one BMC.
func (c *Controller) period() time.Duration { return periodOf(c.machines()) }

func periodOf(machines int) time.Duration {
	return max(minPeriod, time.Duration(machines)*time.Second/rate)
}

// machines returns the number of machines, which is kept with their changes.
func (c *Controller) machines() (n int) {
	for _, inState := range c.Tables.CountMachines() {
		n += inState
	}
	return n
}

// jitter returns about d: a tenth less or more.
func jitter(d time.Duration) time.Duration { return d - d/10 + rand.N(d/5) }

// isRefusal reports an error that the next read will have, too.
func isRefusal(err error) bool {
	return errors.Is(err, trivet.ErrUnauthenticated) || errors.Is(err, trivet.ErrForbidden) ||
		errors.Is(err, trivet.ErrInvalid)
}
