package addressing

import (
	"context"
	"sync"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/ipam"
)

// ages counts for how long the records of leases have not been written, by this head's monotonic clock: heads' wall
// clocks may be days apart. A record that was there when the head started may be older than it counts.
type ages struct {
	mu   sync.Mutex
	seen map[string]age // guarded by mu; by address
}

type age struct {
	revision int64
	since    time.Time
	exact    bool // the write was observed
}

func newAges() *ages { return &ages{seen: map[string]age{}} }

// note begins to count for a record, unless that has begun. Only leases that end are counted.
func (g *ages) note(record *trivet.Address, exact bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case record.Status.Lasts == 0:
		delete(g.seen, record.Name)
	case g.seen[record.Name].revision < record.Revision:
		g.seen[record.Name] = age{record.Revision, time.Now(), exact}
	}
}

func (g *ages) forget(name string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.seen, name)
}

// left returns how much of a lease is left. It is at most that if exact is not set. A record that was not observed yet
// has all of it left.
func (g *ages) left(record *trivet.Address) (left time.Duration, exact bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	left = record.Status.Lasts.D()
	v, ok := g.seen[record.Name]
	if !ok || v.revision != record.Revision {
		return left, false
	}
	return left - time.Since(v.since), v.exact
}

// followLeases observes the writes of leases until ctx ends.
func (l *Leases) followLeases(ctx context.Context) error {
	for ctx.Err() == nil {
		feed := l.Store.Watch(0, "Address") // before the list, so that no write is missed in between
		for record := range l.Addresses.AllShared() {
			l.ages.note(record, false)
		}
		for {
			events, err := feed.Next(ctx)
			if err != nil {
				break // the records are listed again
			}
			for _, e := range events {
				l.observe(e.Name)
			}
		}
	}
	return nil
}

func (l *Leases) observe(name string) {
	record, err := l.Addresses.GetShared(name)
	if err != nil {
		l.ages.forget(name)
		return
	}
	l.ages.note(record, true)
}

// Expired reports whether a lease has ended: no client has the address by it. Those of machines and fixed ones never
// end.
func (l *Leases) Expired(record *trivet.Address) bool {
	left, _ := l.ages.left(record)
	return !ipam.Kept(record) && (record.Status.Released || left <= -leaseGrace)
}
