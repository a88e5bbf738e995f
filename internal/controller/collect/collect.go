// Package collect makes ended runs history that are not the last one of their machine. It deletes what is no longer
// referenced: runs of provisions that are gone, logs of runs that are gone, events of machines that are gone, expired
// leases and tokens, old entries of the audit log, what is left of heads that were removed, blobs that no record refers
// to, and what the deletion of a record has left. Each record is read again in the transaction that deletes it, with
// what it refers to.
package collect

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/blob"
	"github.com/trivet-project/trivet/internal/reconcile"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
)

// Logs are the logs that this head holds, as [runlog.Store] has them.
type Logs interface {
	Workflows() ([]string, error)
	LastWritten(workflow string) (time.Time, error)
	Remove(workflow string) error
}

// Declaration is what the controller reads and writes.
var Declaration = reconcile.Declaration{
	Name:    "collect",
	Reads:   []trivet.Kind{"Provision", "Machine", "Account"},
	Writes:  []trivet.Kind{"Workflow", "Address", "MAC", "Token", "Event", "Head"},
	Workers: 1,
}

const (
	// keepRun is how long an ended run stays after its provision is gone, for people who want to know why it ended.
	keepRun = 7 * 24 * time.Hour
	// keepLease is how long an expired lease stays, so that its machine gets the same address again.
	keepLease = 24 * time.Hour
	// keepEvent is how long an event stays after its machine is gone.
	keepEvent = 7 * 24 * time.Hour
	// keepLog is how long a log stays after it was last written to, whether its run is known or not.
	keepLog = time.Hour
	// keepToken is how long an expired token stays: a head that joins by one may repeat its request, and clocks differ.
	keepToken = 24 * time.Hour
	// keepHead is how long the record of a head stays after its removal, for people who want to know about it. Until
	// then members are removed that were added for it at the same moment.
	keepHead = 30 * 24 * time.Hour
	// keepAudit and maxAudit are how long entries of the audit log stay, and how many.
	keepAudit = 365 * 24 * time.Hour
	maxAudit  = 100_000
	interval  = 10 * time.Minute
)

// The keys.
const (
	keyRuns    = "runs"
	keyFormer  = "former-runs"
	keyLogs    = "logs"
	keyLeases  = "leases"
	keyEvents  = "events"
	keyOrphans = "orphans"
	keyAudit   = "audit"
	keyTokens  = "tokens"
	keySaved   = "checkpoints"
	keyHeads   = "heads"
	keyBlobs   = "blobs"
)

// Config is what the controller needs.
type Config struct {
	Tables *state.Tables
	Head   string // this head's name
	Logs   Logs
	Blobs  Blobs
	// Expired reports whether the lease of an address has ended: the wall clock of one head does not decide that.
	Expired func(*trivet.Address) bool
}

// Controller implements [reconcile.Controller]. Each of its keys is one sweep.
type Controller struct {
	Config
	unused map[blob.Digest]unusedBlob // by the last sweep
	pass                              // through the records of each key
	// logsAfter is the name of the log after which the next sweep goes on.
	logsAfter string
	reference int // in trivet.References: the sweep of orphans is at its records
}

// New returns the controller.
func New(cfg Config) *Controller {
	return &Controller{Config: cfg, unused: map[blob.Digest]unusedBlob{}, pass: pass{after: map[string]string{}}}
}

// Declaration implements [reconcile.Controller].
func (c *Controller) Declaration() reconcile.Declaration { return Declaration }

// Keys implements [reconcile.Controller].
func (c *Controller) Keys() []string {
	return []string{keyRuns, keyFormer, keyLogs, keyLeases, keyEvents, keyOrphans, keyAudit, keyTokens, keySaved, keyHeads,
		keyBlobs}
}

// Affected implements [reconcile.Controller]. Sweeps are periodic.
func (c *Controller) Affected(*store.Event) []string { return nil }

// Reconcile implements [reconcile.Controller].
func (c *Controller) Reconcile(ctx context.Context, key string) (after time.Duration, err error) {
	c.begin()
	err = c.sweep(ctx, key, time.Now())
	return c.pause(), err
}

func (c *Controller) sweep(ctx context.Context, key string, now time.Time) error {
	switch key {
	case keyRuns:
		return c.runs(ctx, now)
	case keyFormer:
		return c.formerRuns(ctx, now)
	case keyLogs:
		return c.oldLogs(ctx, now)
	case keyLeases:
		return c.leases(ctx, now)
	case keyEvents:
		return c.events(ctx, now)
	case keyOrphans:
		return c.orphans(ctx)
	case keyAudit:
		return c.Tables.Store.TrimCold(ctx, state.AuditStream, maxAudit, now.Add(-keepAudit))
	case keyTokens:
		return c.tokens(ctx, now)
	case keySaved:
		return c.checkpoints(ctx)
	case keyHeads:
		return c.heads(ctx, now)
	case keyBlobs:
		return c.blobs(ctx, now)
	}
	return fmt.Errorf("%w: there is no sweep %q", trivet.ErrInvalid, key)
}

// delete deletes a record if it is unused by what the transaction reads. One that is gone already is a success.
func (c *Controller) delete(ctx context.Context, kind trivet.Kind, name string,
	unused func(tx *store.Tx) (bool, error)) error {
	_, err := c.Tables.Store.Update(ctx, func(tx *store.Tx) error {
		if ok, err := unused(tx); err != nil || !ok {
			return err
		}
		c.busy = true
		return tx.Delete(kind, name)
	})
	if errors.Is(err, trivet.ErrNotFound) {
		return nil
	}
	return err
}
