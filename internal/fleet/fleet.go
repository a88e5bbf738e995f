// Package fleet holds the transitions of machines and their runs: a claim, a hello, a batch of reports, a boot step,
// a deadline, a release. Each is one method and one transaction, whether the API, netboot or a controller calls it.
// The rules are in internal/workflow; this package applies them and writes what belongs together.
package fleet

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/addressing"
	"github.com/trivet-project/trivet/internal/learnt"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
)

// Fleet is the machines and their runs. It embeds the tables that it works on, so that its callers read the same
// ones.
type Fleet struct {
	*state.Tables
	// AgentUp reports whether the agent of an epoch is not lost. Where it is nil, no agent is up.
	AgentUp func(machine string, epoch int64) bool
	// AgentHeard reports whether this head has heard the agent of an epoch. Where it is nil, it has heard none.
	AgentHeard func(machine string, epoch int64) bool
	// AgentSilence returns for how long no head has heard the agent of an epoch. Where it is nil, every agent is
	// silent.
	AgentSilence func(machine string, epoch int64) time.Duration
	// Propose returns the address that DHCP will give to a machine which has none; nil where it has one, or where its
	// network is not known. Where Propose is nil, none is assigned at a claim.
	Propose func(*trivet.Machine) (*addressing.Proposal, error)
	// Predict returns what Propose would, and notes nothing. Where Predict is nil, previews assign no address.
	Predict func(*trivet.Machine) (*addressing.Proposal, error)
	// Stated returns an address that the boot port of a machine has, as an operator states. Where Stated is nil, none can
	// be stated.
	Stated func(*trivet.Machine, netip.Addr) (*addressing.Proposal, error)
	// Learnt returns what was learnt of earlier runs. Where it is nil, nothing was.
	Learnt func() *learnt.Book
	// Metrics count the transitions that this head commits; nil: they are not counted.
	Metrics *Metrics
	// Log gets what becomes of machines, runs and provisions by this head's transactions; nil: nothing is logged.
	Log        *slog.Logger
	group      *store.Group // the transitions of many machines share transactions of etcd
	enrolments *pace        // by network
	hellos     *pace        // by machine, as below
	reports    *pace
	searches   *searches
	lanes      *lanes
	worked     *worked
	needs      *needs
	head       string // the head that writes, for events
	now        func() time.Time
}

// New returns the fleet of a store. head is the name of the head that acts.
func New(tables *state.Tables, head string) *Fleet {
	return &Fleet{Tables: tables, group: tables.Store.NewGroup(), enrolments: newPace(enrolRate, enrolBurst),
		hellos: newPace(helloRate, helloBurst), reports: newPace(reportRate, reportBurst), searches: newSearches(),
		lanes: newLanes(), worked: &worked{}, needs: &needs{}, head: head, now: time.Now}
}

// Within returns the fleet with local reads limited to a scope. Transactions are limited by their context.
func (f *Fleet) Within(s *store.Scope) *Fleet {
	limited := *f
	limited.Tables = f.Tables.Within(s)
	return &limited
}

// Self returns the name of this head.
func (f *Fleet) Self() string { return f.head }

// errUnchanged ends a transaction that has nothing to write.
var errUnchanged = errors.New("nothing to write")

// update runs one transaction, which may share its commit with others. One that has nothing to write is a success.
func (f *Fleet) update(ctx context.Context, do func(tx *store.Tx) error) error {
	err := f.inLane(ctx, func(ctx context.Context) error {
		_, err := f.group.Update(ctx, do)
		return err
	})
	if errors.Is(err, errUnchanged) {
		return nil
	}
	return err
}
