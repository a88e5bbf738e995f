package cluster

import (
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

const (
	// steadyWriters are the programs that write at a constant rate in all, each to keys of its own, by the SDK.
	steadyWriters = 24
	// steadyRate is how many writes per second they begin in all, where the heads take as many. STEADY_RATE is another.
	steadyRate   = 1000
	steadyPrefix = "steady-" // of its keys
	// perKey is how often a key is written, so that the checker searches short histories.
	perKey = 1000
	// steadySection is the time of a section of what is followed once more. A watch resumes over 20,000 revisions, by a
	// head that was started again over 1,000.
	steadySection = 3 * time.Second
)

// steady writes key after key at a constant rate. What comes too late is left out.
func (l *load) steady(id int) {
	c, err := l.site.client(0, l.site.heads...)
	if err != nil {
		l.history.trouble("steady writer", err)
		return
	}
	defer c.Close()
	records := client.Of[trivet.Template](c)
	each := time.Duration(steadyWriters) * time.Second / time.Duration(rateOf())
	next := l.history.now() + each*time.Duration(id)/steadyWriters
	for n := 0; !l.over(); n++ {
		key := fmt.Sprintf("%s%d-%d", steadyPrefix, id, n/perKey)
		if n%perKey == 0 && !l.retry(func() error { return l.make(l.ctx, keyRecord(key, "")) }) {
			return
		}
		o := op{Client: -1, Do: "write", Key: key, Value: fmt.Sprintf("s%d.%d", id, n), Call: l.history.now()}
		got, err := records.Patch(l.ctx, key, valuePatch(o.Value), 0)
		l.ended(&o, got, err)
		next = max(next+each, l.history.now()-each)
		l.pause(next - l.history.now())
	}
}

func rateOf() int {
	if n, err := strconv.Atoi(os.Getenv("STEADY_RATE")); err == nil && n > 0 {
		return n
	}
	return steadyRate
}

// resume follows all changes from the beginning until the last one by many watches: each begins where the one before
// was ended, after a pause.
func (l *load) resume(name string) {
	c, err := l.site.client(0, l.site.heads...)
	if err != nil {
		l.history.trouble(name, err)
		return
	}
	defer c.Close()
	dice := l.dice(name)
	at, over := l.from, false
	for !over && l.feeding.Err() == nil {
		at, over = l.follower(c, name, at, 1+dice.IntN(2000))
		nap(l.feeding, time.Duration(dice.IntN(1000))*time.Millisecond)
	}
}

// follower follows at least n changes after a revision, and all of the last one's revision: a watch resumes after a
// revision, not within one.
func (l *load) follower(c *client.Client, name string, from int64, n int) (at int64, over bool) {
	at = from
	for e, err := range c.Watch(l.feeding, client.WatchOptions{Kinds: followed, From: from}) {
		if err != nil {
			if l.feeding.Err() == nil {
				failed := change{Type: "error", Name: err.Error()}
				l.history.note(func(h *History) { h.Feeds[name] = append(h.Feeds[name], failed) })
			}
			return at, true
		}
		x := changeOf(e)
		if n <= 0 && x.Revision > at {
			break
		}
		l.history.note(func(h *History) { h.Feeds[name] = append(h.Feeds[name], x) })
		if isLast(x) || e.Type == client.Reset {
			return at, true
		}
		at, n = x.Revision, n-1
	}
	return at, false
}
