package deadline

import (
	"context"
	"iter"
	"time"

	"github.com/trivet-project/trivet/internal/uptime"
)

// Every head counts every wait. For each wait the head that ranks first for it saves what it has counted, with all of
// its waits in one document. All read the documents of all. A head that starts, or that could not count for a while,
// goes on from there, and from what the others say that they have counted since (peers.go).

// interval is how often a head saves what it has counted: what is lost of a wait when all heads that counted it are.
const interval = 10 * time.Second

// Run implements [reconcile.Background].
func (c *Controller) Run(ctx context.Context) {
	for round := 0; ; {
		after := interval
		if err := c.checkpoint(ctx); err != nil && ctx.Err() == nil {
			c.Log.Warn("cannot save the elapsed time of waits", "error", err)
		}
		if !c.loaded() {
			after = uptime.Interval
		}
		if c.loaded() {
			if round%learnInterval == 0 {
				c.exchangeLearnt(ctx)
			}
			round++
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(after):
		}
	}
}

// checkpoint reads what all heads have saved, and saves what this one has counted. Nothing is counted without a quorum.
func (c *Controller) checkpoint(ctx context.Context) error {
	clock := c.Clock.Read()
	if !clock.Counting() {
		return nil
	}
	saved, err := c.Saved.Load(ctx)
	if err != nil {
		return err
	}
	if missed := clock.Missed(); !c.loaded() || c.asked != missed {
		saved.Add(c.Others.Counted(ctx))
		c.asked = missed
	}
	// What the others have counted includes the time of these requests. Counted from before them, it would count twice.
	if clock = c.Clock.Read(); !clock.Counting() {
		return nil
	}
	return c.Saved.Save(ctx, c.exchange(saved, clock.Counted()))
}

// loaded reports whether this head has read what was saved.
func (c *Controller) loaded() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.saved != nil
}

// exchange learns what the heads have saved, and returns how much is used of the waits for which this one ranks first.
func (c *Controller) exchange(saved uptime.Checkpoint, now time.Duration) uptime.Checkpoint {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.saved == nil {
		c.since = c.Tables.Store.Revision()
	}
	c.saved = saved
	own := uptime.Checkpoint{}
	for workflow, t := range c.advanced(now) {
		used := t.Used()
		t.Raise(t.credit(saved))
		if c.Rank(workflow) == 0 {
			own[t.id] = max(used, saved[t.id])
		}
	}
	return own
}

// counted returns what this head has counted.
func (c *Controller) counted() uptime.Checkpoint {
	clock := c.Clock.Read()
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make(uptime.Checkpoint, len(c.timers))
	for _, t := range c.advanced(clock.Counted()) {
		all[t.id] = t.Used()
	}
	return all
}

// advanced returns the timers by their workflows, each as it is at a counted time. c.mu is held.
func (c *Controller) advanced(now time.Duration) iter.Seq2[string, *timer] {
	return func(yield func(string, *timer) bool) {
		for workflow, t := range c.timers {
			w, err := c.Tables.Workflows.GetShared(workflow)
			m, noMachine := c.Tables.Machines.GetShared(t.machine)
			if err != nil || noMachine != nil {
				continue
			}
			t.Advance(now, isQueued(w, t.wait, m))
			if !yield(workflow, t) {
				return
			}
		}
	}
}

// credit returns how much of the wait counts that was saved. A head that takes it has just started, or was paused: it
// leaves agents time to find it.
func (t *timer) credit(saved uptime.Checkpoint) time.Duration {
	return min(saved[t.id], t.limit-min(t.limit/4, uptime.MaxSettle))
}
