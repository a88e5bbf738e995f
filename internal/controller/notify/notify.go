// Package notify delivers events to the receivers of notifiers: at least once each, in their order.
//
// One head delivers for a notifier: the one that its status names. When it is lost, or cannot reach the receiver,
// another one is named there by a transaction that compares the status, and continues at the cursor. The status is
// written when something was delivered or could not be, at most once a second, and not for events that the notifier
// does not want.
package notify

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/notify"
	"github.com/trivet-project/trivet/internal/reconcile"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
)

// Declaration is what the controller reads and writes.
var Declaration = reconcile.Declaration{
	Name:    "notify",
	Reads:   []trivet.Kind{"Secret", "Machine", "Address", "Provision", "Workflow"},
	Writes:  []trivet.Kind{"Notifier", "Event"},
	Watches: []trivet.Kind{"Notifier", "Event"},
	Workers: trivet.MaxNotifiers, // so that one whose receiver hangs delays no other
}

// Config is what the controller needs.
type Config struct {
	Tables  *state.Tables
	Head    string // the name of this head
	Cluster string // the ID of the cluster
	// Rank returns how many heads go before this one for a key.
	Rank func(key string) int
	// Others returns the other full heads, and Live reports which of them are working.
	Others  func() map[string]string
	Live    func(head string) bool
	Unseal  notify.Unseal
	Metrics prometheus.Registerer // nil: none
}

// Controller implements [reconcile.Controller]. Its keys are names of notifiers.
type Controller struct {
	Config
	lostTime time.Duration

	mu     sync.Mutex
	works  map[string]*work // guarded by mu; by notifier: what this head delivers
	losses map[string]loss  // guarded by mu; by notifier
}

// New returns the controller.
func New(cfg Config) *Controller {
	c := &Controller{Config: cfg, lostTime: lostTime, works: map[string]*work{}, losses: map[string]loss{}}
	if cfg.Metrics != nil {
		cfg.Metrics.MustRegister(collector{cfg.Tables})
	}
	return c
}

// Declaration implements [reconcile.Controller].
func (c *Controller) Declaration() reconcile.Declaration { return Declaration }

// Keys implements [reconcile.Controller].
func (c *Controller) Keys() []string { return c.Tables.Notifiers.Names() }

// Affected implements [reconcile.Controller].
func (c *Controller) Affected(e *store.Event) (names []string) {
	if e.Kind == "Event" {
		for n := range c.Tables.Notifiers.AllShared() {
			// without a notifier the record is not decoded
			if is, ok := e.Record().(*trivet.Event); ok && c.wants(n, is) {
				names = append(names, n.Name)
			}
		}
		return names
	}
	if is, ok := e.Record().(*trivet.Notifier); ok { // not for each change of its own status
		was, ok := e.Old().(*trivet.Notifier)
		if ok && was.Generation == is.Generation && was.UID == is.UID && was.Status.Head == is.Status.Head {
			return nil
		}
	}
	return []string{e.Name}
}

// interval is how often a head checks a notifier: whether it has to deliver for it, and how far the cursor is behind.
// That is done in memory.
const interval = 5 * time.Second

// Reconcile implements [reconcile.Controller].
func (c *Controller) Reconcile(ctx context.Context, name string) (after time.Duration, err error) {
	n, err := c.Tables.Notifiers.Get(name)
	if errors.Is(err, trivet.ErrNotFound) {
		c.forget(name)
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	if !c.delivers(n) {
		c.stop(name)
		return interval, nil
	}
	after, err = c.work(n).round(ctx)
	if errors.Is(err, trivet.ErrConflict) || errors.Is(err, trivet.ErrNotFound) { // by another head, or an operator
		c.stop(name)
		return time.Second, nil
	}
	return after, err // where it could not be written, what was delivered is not sent again
}

// lostTime is for how long a head is not working before another one delivers in its place. A head that starts does not
// know for a moment which others are.
const lostTime = 5 * time.Second

// delivers reports whether this head delivers for a notifier: its status names it, or none, or a head that is lost, and
// no other head goes before this one.
func (c *Controller) delivers(n *trivet.Notifier) bool {
	holder := n.Status.Head
	if holder == c.Head {
		return true
	}
	return (holder == "" || c.lost(n.Name, holder)) && c.Rank(n.Name) == 0
}

// lost reports whether the head that delivers for a notifier has not been working for a while.
func (c *Controller) lost(name, head string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.losses[name]
	if c.Live(head) {
		delete(c.losses, name)
		return false
	}
	if l.head != head {
		l = loss{head, time.Now()}
		c.losses[name] = l
	}
	return time.Since(l.since) >= c.lostTime
}

// loss is since when a head that delivers is not working.
type loss struct {
	head  string
	since time.Time
}

// next returns the head that tries after this one could not deliver: this one, where no other is working.
func (c *Controller) next() string {
	first, after := c.Head, ""
	for name := range c.Others() {
		switch {
		case !c.Live(name):
		case name > c.Head && (after == "" || name < after):
			after = name
		case name < first:
			first = name
		}
	}
	if after != "" {
		return after
	}
	return first
}

// work returns what this head has done for a notifier, or begins at what the record has: it is a new one, another head
// has written it, or an operator has changed its spec.
func (c *Controller) work(n *trivet.Notifier) *work {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.works[n.Name]
	if w == nil || !w.continues(n) {
		w = newWork(c, n)
		c.works[n.Name] = w
	}
	w.notifier = n
	return w
}

// stop ends the work of this head for a notifier.
func (c *Controller) stop(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.works, name)
}

// forget ends it for one that is deleted.
func (c *Controller) forget(name string) {
	c.stop(name)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.losses, name)
}

func (c *Controller) open(n *trivet.Notifier) (notify.Sender, error) {
	if n.Secret() == "" {
		return notify.Open(n, nil, c.Unseal)
	}
	secret, err := c.Tables.Secrets.Get(trivet.Resolve("", n.Secret()))
	if err != nil {
		return nil, err
	}
	return notify.Open(n, secret, c.Unseal)
}
