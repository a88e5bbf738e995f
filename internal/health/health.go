// Package health collects the facts of trivet status: what this head knows of itself (own.go), by a synthetic boot
// in each of its networks (probe.go, plan.go), what the others report of themselves (peers.go), and what the records
// say (site.go). internal/invariant decides on them.
package health

import (
	"context"
	"fmt"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/cluster"
	"github.com/trivet-project/trivet/internal/invariant"
	"github.com/trivet-project/trivet/internal/peer"
	"github.com/trivet-project/trivet/internal/state"
)

// Member is the part of [cluster.Member] that is used here.
type Member interface {
	Usage() cluster.Usage
	Disk() (cluster.Disk, error)
	Alarms() []string
	Peers() []cluster.Peer
}

// Config is what a Source needs.
type Config struct {
	Head   string // this one
	Member Member
	Tables *state.Tables
	Client *peer.Client
	// View returns the heads as this one sees them, Statuses what its pings know of the others.
	View     func() trivet.Cluster
	Statuses func() map[string]peer.Status
	// Quorum reports whether this head is connected to a leader, Refused how many values of the store it refuses.
	Quorum  func() bool
	Refused func() int
	// MissingBlobs returns the blobs that records refer to and this head does not hold.
	MissingBlobs func() []trivet.BlobRef
	// DiskErrors returns what this head's disks could not read or write in the last day.
	DiskErrors func() []string
	// Certificates returns the certificates of this head.
	Certificates func() []trivet.CertificateFacts
	// Late returns the runs that are beyond their deadlines, and those whose agents are not heard.
	Late func() Late
	// Ports returns those of this head's boot services.
	Ports func() Ports
	// Segments returns those without a Network from which DHCP clients ask.
	Segments func() []trivet.SegmentFacts
	// Takeover returns what this head needs to take over.
	Takeover func() *trivet.TakeoverFacts
	// Started reports whether all of the above may be used.
	Started func() bool
}

// Ports are the ports of boot services. All heads of a network use the same, as firmware expects. 0: not served.
type Ports struct{ DHCP, TFTP uint16 }

// Late are runs that do not go on as they must.
type Late struct {
	Overdue, Silent         int
	OverdueRuns, SilentRuns []string // their names, bounded in number
}

// Ages up to which what heads reported is reported again: they bound the work that requests cause.
const (
	ownAge   = 3 * time.Second
	headsAge = time.Second
)

// Source collects facts and checks the invariants. Create it by New.
type Source struct {
	Config
	own   cached[trivet.OwnFacts]
	asked cached[[]trivet.HeadFacts]
}

// New returns a Source.
func New(cfg Config) *Source {
	return &Source{Config: cfg, own: newCached[trivet.OwnFacts](ownAge),
		asked: newCached[[]trivet.HeadFacts](headsAge)}
}

// errStarting is the error of a head that has not started yet.
var errStarting = fmt.Errorf("%w: this head is starting", trivet.ErrUnavailable)

// Report returns the state of the site: what the records say now, and what the heads reported at most a second ago. It
// fails while this head starts, and where ctx ends.
func (s *Source) Report(ctx context.Context) (r trivet.StatusReport, err error) {
	if !s.Started() {
		return r, errStarting
	}
	view := s.View()
	heads, err := s.asked.get(ctx, func(ctx context.Context) []trivet.HeadFacts { return s.heads(ctx, view) })
	if err != nil {
		return r, err
	}
	facts := s.site(view)
	facts.Heads = heads
	all := invariant.Check(&facts)
	return trivet.StatusReport{Cluster: view.ID, State: invariant.Worst(all), Invariants: all, Facts: facts}, nil
}

// cached is a value that is collected when it is requested and old. One caller collects it, and the others wait.
type cached[T any] struct {
	age  time.Duration
	lock chan struct{} // has one item while the value is used
	last *T
	at   time.Time
}

func newCached[T any](age time.Duration) cached[T] {
	return cached[T]{age: age, lock: make(chan struct{}, 1)}
}

// collectTimeout bounds the collection of a value.
const collectTimeout = 8 * time.Second

func (c *cached[T]) get(ctx context.Context, collect func(context.Context) T) (v T, err error) {
	select {
	case c.lock <- struct{}{}:
	case <-ctx.Done():
		return v, context.Cause(ctx)
	}
	defer func() { <-c.lock }()
	if c.last != nil && time.Since(c.at) < c.age {
		return *c.last, nil
	}
	// another caller may use it: the end of this one must not end it
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), collectTimeout)
	defer cancel()
	v = collect(ctx)
	c.last, c.at = &v, time.Now()
	return v, nil
}
