package heads

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/fleet"
)

// Sight is what this head knows of another one, from greeting it.
type Sight struct {
	Greeting           // its last
	Heard    time.Time // when it last answered; zero: not since this head started
	Since    time.Time // from when on all has been well with it: see MaxLag; zero: it does not answer
	Lag      int64     // revisions that its copy was behind ours
	Skew     time.Duration
	Err      error // why it does not answer
}

// MaxLag is how many revisions the copy of a head may be behind with which all is well. Besides, it answers each time, knows who
// leads, and does not start anew.
const MaxLag = 100

// maxSkew is how far clocks may differ before it is told.
const maxSkew = 5 * time.Second

// circleEvery is how often heads greet each other.
const circleEvery = 2 * time.Second

// Circle greets all other heads now and then, and remembers.
type Circle struct {
	fleet  *fleet.Fleet
	caller *Caller
	log    *slog.Logger

	out chan error // this head was removed, another one says

	mu     sync.Mutex
	sights map[string]Sight // guarded by mu; by head
}

// NewCircle makes one, which Run fills.
func NewCircle(f *fleet.Fleet, caller *Caller, log *slog.Logger) *Circle {
	return &Circle{fleet: f, caller: caller, log: log, out: make(chan error, 1), sights: map[string]Sight{}}
}

// Sights gives what is known of the other heads, by name.
func (c *Circle) Sights() map[string]Sight {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.sights)
}

// Live says whether a head answered when it was greeted last, a moment ago, and had a quorum then.
func (c *Circle) Live(head string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, ok := c.sights[head]
	return ok && s.Err == nil && s.Leader != "" && time.Since(s.Heard) < 3*circleEvery
}

// Run greets until ctx ends, or a head says that this one was removed, which is an ErrForbidden.
func (c *Circle) Run(ctx context.Context) error {
	tick := time.NewTicker(circleEvery)
	defer tick.Stop()
	for {
		c.round(ctx)
		select {
		case <-ctx.Done():
			return nil
		case err := <-c.out:
			return err
		case <-tick.C:
		}
	}
}

func (c *Circle) round(ctx context.Context) {
	self := c.caller.self()
	var greeting sync.WaitGroup
	there := map[string]bool{}
	for h := range c.fleet.Heads.AllShared() {
		if h.Name == self.Head || h.Status.State == trivet.HeadRemoved || h.Status.Peer == "" {
			continue
		}
		there[h.Name] = true
		greeting.Go(func() { c.look(ctx, h, self.Revision) })
	}
	greeting.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.sights, func(name string, _ Sight) bool { return !there[name] })
}

// look greets one head. ours is the revision that it should have.
func (c *Circle) look(ctx context.Context, h *trivet.Head, ours int64) {
	sent := time.Now()
	theirs, err := c.caller.Greet(ctx, h.Status.Peer)
	now := time.Now()
	if ctx.Err() != nil {
		return
	}
	if errors.Is(err, trivet.ErrForbidden) {
		select {
		case c.out <- err:
		default:
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.sights[h.Name]
	if err != nil {
		was.Err, was.Since = err, time.Time{}
		c.sights[h.Name] = was
		return
	}
	s := Sight{Greeting: theirs, Heard: now, Since: was.Since, Lag: max(0, ours-theirs.Revision), Skew: theirs.Time.Sub(sent.Add(now.Sub(sent) / 2))}
	if well := s.Leader != "" && s.Lag <= MaxLag && s.Started.Equal(was.Started); !well || s.Since.IsZero() {
		s.Since = now
	}
	if s.Skew.Abs() <= maxSkew+now.Sub(sent) {
		s.Skew = 0
	} else if was.Skew == 0 {
		c.log.Warn("the clock of another head differs from this one's; set both by NTP", "head", h.Name, "ahead", s.Skew.Round(time.Second))
	}
	c.sights[h.Name] = s
}
