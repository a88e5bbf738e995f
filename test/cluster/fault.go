package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/testhead"
)

// trial is a site under load into which faults are injected.
type trial struct {
	*site
	load *load
	dice *rand.Rand
}

// kind is one kind of fault.
type kind struct {
	name   string
	weight int // how often it is chosen, against the others
	// hold is how long it lasts, within [hold/2, hold].
	hold time.Duration
	// begin injects it, and returns what it did and how to undo that.
	begin func(ctx context.Context, t *trial) (what string, undo func() error, err error)
}

// kinds are the faults that any site can have.
var kinds = []kind{
	{"kill", 6, 3 * time.Second, killAny},
	{"kill the leader", 6, 2 * time.Second, killLeader},
	{"kill two", 2, 6 * time.Second, killTwo},
	{"kill all at once", 1, time.Second, killAll},
	{"rolling restart", 1, 0, rollingRestart},
	{"stop the leader", 2, 12 * time.Second, stopLeader},
	{"stop a head", 2, 12 * time.Second, stopAny},
	{"cut off the leader", 2, 8 * time.Second, cutLeader},
	{"cut off a head", 1, 8 * time.Second, cutAny},
	{"leader receives nothing", 1, 8 * time.Second, deafLeader},
	{"leader sends nothing", 1, 8 * time.Second, muteLeader},
	{"cut off a head with a rack", 1, 8 * time.Second, cutWithRack},
	{"cut off a rack", 1, 8 * time.Second, cutRack},
	{"lose frames", 2, 8 * time.Second, loseFrames},
	{"delay frames", 2, 8 * time.Second, delayFrames},
	{"starve a head", 1, 8 * time.Second, starve},
	{"reset a machine", 3, 0, resetMachine},
	{"stop a rack", 1, 10 * time.Second, stopRack},
	{"cut a head off the heads", 1, 12 * time.Second, cutFromHeads},
	{"cut all heads off each other", 1, 12 * time.Second, cutHeads},
	{"hostile clients", 1, 10 * time.Second, hostileClients},
}

// Kinds that only some sites can have: where the last head has a small file system, where disks lose what was not
// synced, where clocks can be set. Others are in fault_bmc.go, where machines have BMCs, and in fault_quota.go, where
// the store is small.
var (
	smallDisk  = []kind{{"slow disk", 1, 8 * time.Second, slowDisk}, {"full disk", 1, 6 * time.Second, fullDisk}}
	lossyDisks = []kind{{"cut the power of a head", 4, time.Second, cutPower},
		{"cut the power of all", 4, time.Second, cutAllPower}}
	ownClocks = []kind{{"set a clock", 4, 8 * time.Second, setClock}}
)

// every returns all kinds.
func every() []kind {
	return slices.Concat(kinds, smallDisk, lossyDisks, ownClocks, brokenBMCs, smallStore)
}

// named finds a kind.
func named(name string) kind {
	for _, k := range every() {
		if k.name == name {
			return k
		}
	}
	panic("no fault is called " + name)
}

// choose picks one of some kinds by weight.
func (t *trial) choose(of []kind) kind {
	var bag []kind
	for _, k := range of {
		bag = append(bag, slices.Repeat([]kind{k}, k.weight)...)
	}
	return bag[t.dice.IntN(len(bag))]
}

// healTimeout is how long heads may take to serve again after a fault.
const healTimeout = 2 * time.Minute

// inject injects a fault, undoes it, and waits until every head serves again and a program has a write acknowledged.
func (t *trial) inject(ctx context.Context, k kind) error {
	f := fault{Kind: k.name, From: t.history.now(), First: t.revision(ctx)}
	what, undo, err := k.begin(ctx, t)
	if err != nil {
		return fmt.Errorf("%s: %w", k.name, err)
	}
	f.What = what
	if k.hold > 0 {
		nap(ctx, k.hold/2+time.Duration(t.dice.Int64N(int64(k.hold/2))))
	}
	if err := undo(); err != nil {
		return fmt.Errorf("undo %s (%s): %w", k.name, what, err)
	}
	ctx, cancel := context.WithTimeout(ctx, healTimeout)
	defer cancel()
	err = t.ready(ctx)
	f.To = t.history.now()
	if err == nil {
		err = testhead.Eventually(ctx, func() error { return t.wroteSince(f.To) })
	}
	f.Last = t.revision(ctx)
	t.history.note(func(h *History) { h.Faults = append(h.Faults, f) })
	if err != nil {
		return fmt.Errorf("after %s (%s): %w", k.name, what, err)
	}
	return nil
}

// revision returns the store's present revision; 0: it is not known.
func (t *trial) revision(ctx context.Context) int64 {
	_, revision, _ := client.Of[trivet.Site](t.load.sdk).List(ctx, client.ListOptions{})
	return revision
}

// wroteSince returns an error unless a program with the SDK had a write acknowledged since a time.
func (t *trial) wroteSince(then time.Duration) (err error) {
	t.history.note(func(h *History) {
		if writes := h.writes(); len(writes) == 0 || writes[len(writes)-1] < then {
			err = errors.New("no write is acknowledged")
		}
	})
	return err
}

// bootedSince returns an error unless a known machine got its boot script since a time.
func (t *trial) bootedSince(then time.Duration) (err error) {
	t.history.note(func(h *History) {
		if len(h.Boots) == 0 || h.Boots[len(h.Boots)-1] < then {
			err = errors.New("no machine has booted")
		}
	})
	return err
}

// any picks a head.
func (t *trial) any() *head { return t.heads[t.dice.IntN(len(t.heads))] }
