package peer

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/trivet-project/trivet"
)

// Status is what this head knows of another one from its pings.
type Status struct {
	Info                       // from its last response
	LastHeard    time.Time     // when it last responded; zero: not since this head started
	LastAnswered time.Time     // when it last responded or refused: see IsSilent
	HealthySince time.Time     // since when it has been healthy: see MaxLag; zero: it does not respond
	Lag          int64         // revisions that its copy was behind this head's
	Skew         time.Duration // how far its clock is ahead of this head's, where that is more than maxSkew
	Err          error         // why it does not respond
}

// MaxLag is how many revisions the copy of a healthy head may be behind. A healthy head also responds to each ping,
// knows the leader, and has not restarted.
const MaxLag = 100

// maxSkew is the difference of two clocks from which on a warning is logged.
const maxSkew = 5 * time.Second

// pingInterval is the time between two pings of the same head.
const pingInterval = 2 * time.Second

// Monitor pings all other heads regularly and keeps their status.
type Monitor struct {
	client  *Client
	heads   func() map[string]string
	log     *slog.Logger
	removed chan error // another head responded that this one was removed

	mu       sync.Mutex
	statuses map[string]Status // guarded by mu; by head
}

// NewMonitor returns a monitor that pings nothing until Run. heads returns the URLs of the other heads by name; it is
// called for each round.
func NewMonitor(client *Client, heads func() map[string]string, log *slog.Logger) *Monitor {
	return &Monitor{client: client, heads: heads, log: log, removed: make(chan error, 1), statuses: map[string]Status{}}
}

// Statuses returns the status of the other heads by name.
func (m *Monitor) Statuses() map[string]Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.statuses)
}

// Acknowledged returns the index of the last entry of the log that a member is known to have written, by what its head
// reported. It returns 0 where the head reported none, or another member.
func (m *Monitor) Acknowledged(head, member string) uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.statuses[head]; s.Member == member {
		return s.Index
	}
	return 0
}

// Live reports whether a head responded to its last ping, a moment ago, and had a quorum then.
func (m *Monitor) Live(head string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	s, ok := m.statuses[head]
	return ok && s.Err == nil && s.Leader != "" && time.Since(s.LastHeard) < 3*pingInterval
}

// Run pings until ctx ends, or until a head responds that this one was removed, which is ErrForbidden.
func (m *Monitor) Run(ctx context.Context) error {
	tick := time.NewTicker(pingInterval)
	defer tick.Stop()
	for {
		m.pingAll(ctx)
		select {
		case <-ctx.Done():
			return nil
		case err := <-m.removed:
			return err
		case <-tick.C:
		}
	}
}

func (m *Monitor) pingAll(ctx context.Context) {
	revision, heads := m.client.info().Revision, m.heads()
	var pings sync.WaitGroup
	for name, url := range heads {
		pings.Go(func() { m.ping(ctx, name, url, revision) })
	}
	pings.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.statuses, func(name string, _ Status) bool { return heads[name] == "" })
}

// ping pings one head. revision is the one that it should have reached.
func (m *Monitor) ping(ctx context.Context, name, url string, revision int64) {
	sent := time.Now()
	info, err := m.client.Ping(ctx, url)
	received := time.Now()
	if ctx.Err() != nil {
		return
	}
	if errors.Is(err, trivet.ErrForbidden) {
		select {
		case m.removed <- err:
		default:
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	last := m.statuses[name]
	if err != nil {
		last.Err, last.HealthySince = err, time.Time{}
		if !IsSilent(err) {
			last.LastAnswered = received
		}
		m.statuses[name] = last
		return
	}
	s := newStatus(last, info, sent, received, revision)
	if s.Member == last.Member {
		s.Index = max(s.Index, last.Index) // a member that starts has none yet
	}
	if s.Skew != 0 && last.Skew == 0 {
		m.log.Warn("the clock of another head differs from this head's; synchronize both by NTP",
			"head", name, "ahead", s.Skew.Round(time.Second))
	}
	m.statuses[name] = s
}

// newStatus returns the status that follows the last one from a response.
func newStatus(last Status, info Info, sent, received time.Time, revision int64) Status {
	roundTrip := received.Sub(sent)
	s := Status{
		Info: info, LastHeard: received, LastAnswered: received, HealthySince: last.HealthySince,
		Lag: max(0, revision-info.Revision), Skew: info.Time.Sub(sent.Add(roundTrip / 2)),
	}
	healthy := s.Leader != "" && s.Lag <= MaxLag && s.Started.Equal(last.Started)
	if !healthy || s.HealthySince.IsZero() {
		s.HealthySince = received
	}
	if s.Skew.Abs() <= maxSkew+roundTrip {
		s.Skew = 0
	}
	return s
}
