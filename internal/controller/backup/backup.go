// Package backup makes the backups of schedules, and proves that they can be restored.
//
// A backup is made by the head that ranks first for its schedule. An attempt is written to the record before it begins,
// with when the next one is due if this one never ends, and when it has ended. So a head that cannot write makes none,
// one that is lost is replaced, and each attempt is counted. Two heads may make one at once where they disagree about
// which of them are working; the lock of the place lets one of them wait.
package backup

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/reconcile"
	"github.com/trivet-project/trivet/internal/recovery"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
)

// Declaration is what the controller reads and writes.
var Declaration = reconcile.Declaration{
	Name:    "backup",
	Reads:   []trivet.Kind{"Secret"},
	Writes:  []trivet.Kind{"BackupSchedule", "Site", "Event"},
	Watches: []trivet.Kind{"BackupSchedule"},
	Workers: trivet.MaxBackupSchedules, // so that one whose disk hangs delays no other
}

// Config is what the controller needs.
type Config struct {
	Tables *state.Tables
	Head   string // the name of this head
	// Rank returns how many heads go before this one for a key.
	Rank func(key string) int
	// Live reports whether another head is working.
	Live func(head string) bool
	// Dir is the directory that those of schedules are below; empty: this head has none.
	Dir string
	// From returns this head as the source of a backup of the schedule with a UID.
	From func(schedule string) Source
	// Prove proves a backup, with Temp as directory of its own: one at a time.
	Prove func(context.Context, recovery.Proof) (recovery.Report, error)
	Temp  string
	// ClusterKeys are the keys of the cluster.
	ClusterKeys *auth.Keys
	// Record records in the site's status that a backup was made or proven.
	Record  func(context.Context, trivet.BackupReport) error
	Unseal  func(secret *trivet.Secret, key string) (string, error)
	Log     *slog.Logger
	Metrics prometheus.Registerer // nil: none
}

// Source is where a backup comes from.
type Source interface {
	recovery.Cluster
	// Bundle returns the keys that are in the last backup. They are secret.
	Bundle() auth.Bundle
}

// Controller implements [reconcile.Controller]. Its keys are names of schedules.
type Controller struct {
	Config
	maxTime time.Duration
	grace   time.Duration
	proving chan struct{} // has an entry while a proof is made

	mu      sync.Mutex
	running map[string]bool // guarded by mu; by schedule
}

// New returns the controller.
func New(cfg Config) *Controller {
	if cfg.Metrics != nil {
		cfg.Metrics.MustRegister(collector{cfg.Tables})
	}
	return &Controller{Config: cfg, maxTime: maxTime, grace: grace, proving: make(chan struct{}, 1), running: map[string]bool{}}
}

// Declaration implements [reconcile.Controller].
func (c *Controller) Declaration() reconcile.Declaration { return Declaration }

// Keys implements [reconcile.Controller].
func (c *Controller) Keys() []string { return c.Tables.Schedules.Names() }

// Affected implements [reconcile.Controller]. What attempts write is seen by each head at its next look.
func (c *Controller) Affected(e *store.Event) []string {
	is, ok := e.Record().(*trivet.BackupSchedule)
	was, known := e.Old().(*trivet.BackupSchedule)
	if ok && known && was.UID == is.UID && was.Generation == is.Generation {
		return nil
	}
	return []string{e.Name}
}

const (
	// interval is how often a head looks which schedules it makes the backups of.
	interval = 30 * time.Second
	// maxTime bounds an attempt, and grace is how long it may take to end then: what waits for a disk that does not
	// answer cannot be ended.
	maxTime = 12 * time.Hour
	grace   = 3 * time.Second
)

// Reconcile implements [reconcile.Controller].
func (c *Controller) Reconcile(ctx context.Context, name string) (after time.Duration, err error) {
	s, err := c.Tables.Schedules.Get(name)
	if errors.Is(err, trivet.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	if wait := waitOf(s, time.Now()); wait > 0 {
		return min(max(wait, time.Second), interval), nil
	}
	if s.Spec.Suspend || !c.makes(s) || !c.start(name) {
		return interval, nil
	}
	if s, err = c.begin(ctx, s); err != nil || s == nil {
		c.end(name)
		return interval, err
	}
	limited, cancel := context.WithTimeout(ctx, c.maxTime)
	defer cancel()
	done := make(chan outcome, 1)
	go func() {
		defer c.end(name)
		done <- c.attempt(limited, s)
	}()
	o := c.await(limited, done)
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	return interval, c.finish(ctx, s, o)
}

// makes reports whether this head makes the next backup of a schedule: the one that ranks first, and another one after
// each few failures, as they may be those of the head. While one is making it, that one does, also when it has restarted.
func (c *Controller) makes(s *trivet.BackupSchedule) bool {
	switch st := &s.Status; {
	case st.Running && st.Head == c.Head:
		return true
	case st.Running && c.Live(st.Head):
		return false
	}
	return c.Rank(fmt.Sprintf("%s/%d", s.Name, s.Status.Failures/3)) == 0
}

// start reports whether this head may start an attempt: it has none of this schedule, such as one that hangs.
func (c *Controller) start(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running[name] {
		return false
	}
	c.running[name] = true
	return true
}

func (c *Controller) end(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.running, name)
}

// outcome is what an attempt did.
type outcome struct {
	made   *trivet.BackupEvent // and proven; nil: it failed
	failed error
	busy   bool // another process used the place
}

// await returns the outcome of an attempt, also of one that does not end.
func (c *Controller) await(ctx context.Context, done <-chan outcome) outcome {
	select {
	case o := <-done:
		return o
	case <-ctx.Done():
	}
	select {
	case o := <-done:
		return o
	case <-time.After(c.grace):
		return outcome{failed: fmt.Errorf("%w: it does not end: a disk or a server does not answer", trivet.ErrUnavailable)}
	}
}

// waitOf returns in how long a backup is due: at once for a new schedule, and after each change of its spec. A time
// that is further away than one interval is that of a clock which was wrong.
func waitOf(s *trivet.BackupSchedule, now time.Time) time.Duration {
	wait := s.Status.Next.Sub(now)
	if s.Status.Generation != s.Generation || wait > time.Duration(s.Spec.Every) {
		return 0
	}
	return wait
}

// pauseAfter returns how long it is from an attempt that failed to the next one.
func pauseAfter(failures int, every time.Duration) time.Duration {
	return min(time.Minute<<min(failures-1, 12), max(time.Hour, every/4), every)
}
