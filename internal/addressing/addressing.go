// Package addressing decides which port has which address, and records it. It knows networks, machines and
// addresses, and no protocol: netboot calls it for DHCP. It decides from this head's local copy of the store by the
// rules of internal/ipam.
//
// An address goes through [Leases.Offer] (offer.go), which writes nothing, and [Leases.Bind] (bind.go), which
// writes the address's record before it returns, unless the record can follow (deferred.go). [Leases.Release] and
// [Leases.Decline] end it (release.go).
package addressing

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/singleflight"
	"golang.org/x/time/rate"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/ipam"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
)

// Config of Leases. Tables must be set.
type Config struct {
	*state.Tables
	// Shared is the address that the heads share; not valid if there is none. No port gets it.
	Shared netip.Addr
	// Quorum reports whether this head can write. Where it cannot, no new address is offered. nil: always.
	Quorum func() bool

	Logger   *slog.Logger          // nothing is logged if nil
	Registry prometheus.Registerer // nothing is registered if nil
}

// Leases assigns addresses to ports. Its methods may be called at once.
type Leases struct {
	Config
	log      *slog.Logger
	networks *state.View[trivet.Network, *networkIndex]
	heads    *state.View[trivet.Head, headAddresses]
	offered  *offered
	heard    *heard
	ages     *ages
	limits   *limits
	group    *store.Group
	writes   singleflight.Group // by MAC and address
	deferred *state.WriteQueue[binding]
	metrics  *metrics
	warnings rate.Sometimes
}

// New returns Leases of a store. Run must be running while they are used.
func New(c Config) *Leases {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	l := &Leases{
		Config: c, log: c.Logger, offered: newOffered(), heard: newHeard(), ages: newAges(), limits: newLimits(),
		metrics: newMetrics(c.Registry), group: c.Store.NewGroup(),
		networks: state.NewView(c.Store, c.Networks, newNetworkIndex),
		heads:    state.NewView(c.Store, c.Heads, newHeadAddresses),
		warnings: rate.Sometimes{Interval: time.Second},
	}
	l.deferred = state.NewWriteQueue(l.writeBinding, func(b binding, err error) {
		l.metrics.dropped.Inc()
		l.log.Debug("the record of an address was not written", "mac", b.mac, "address", b.address, "error", err)
	})
	return l
}

// Run counts the ages of leases, and writes the records that follow a binding, until ctx ends.
func (l *Leases) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return l.followLeases(ctx) })
	g.Go(func() error { return l.deferred.Run(ctx) })
	return g.Wait()
}

// Request is a port that needs an address, or has one.
type Request struct {
	MAC     string          // canonical
	Machine *trivet.Machine // nil: no record has the MAC
	Network *Network        // that the port is attached to

	Hint   netip.Addr // the address that the port asks for, if it asks for one
	Server netip.Addr // this head's own address on the network; no port gets it
	Port   string     // of the switch, as a relay names it (option 82); empty if none does
	Wait   Waiter     // asked before a call waits for the store; may be nil

	predict bool // neither the offer is noted nor that the network is full
}

// Waiter is asked before a call waits for something else than memory. Where Yield is false, too many wait already.
type Waiter interface{ Yield() bool }

func (r *Request) yield() bool { return r.Wait == nil || r.Wait.Yield() }

// errBusy: the client asks again, this head or another.
var errBusy = fmt.Errorf("too many clients wait for the store: %w", trivet.ErrUnavailable)

// use returns the use of the ranges that the port may have an address from.
func (r *Request) use() string {
	if r.Machine == nil {
		return ipam.Discovery
	}
	return ipam.Known
}

// fixed returns the address that the operator assigned to the port, if it is in this network.
func (r *Request) fixed() netip.Addr {
	if r.Machine == nil {
		return netip.Addr{}
	}
	for i := range r.Machine.Spec.NICs {
		nic := &r.Machine.Spec.NICs[i]
		if nic.MAC != r.MAC {
			continue
		}
		if ipam.Assignable(r.Network.Record, nic.Address) {
			return nic.Address
		}
		break
	}
	return netip.Addr{}
}

// owns reports whether an address is one that the port may keep: its fixed one, or one for known machines.
func (r *Request) owns(a netip.Addr) bool {
	return r.Machine != nil && (r.fixed() == a || ipam.Fits(r.Network.Record, ipam.Known, a))
}

func (r *Request) machineName() string {
	if r.Machine == nil {
		return ""
	}
	return r.Machine.Name
}

// writable reports whether this head has a quorum.
func (l *Leases) writable() bool { return l.Quorum == nil || l.Quorum() }

// warn logs what clients can cause, at most once a second: clients may be hostile.
func (l *Leases) warn(message string, args ...any) {
	l.warnings.Do(func() { l.log.Warn(message, args...) })
}

// first returns the first of a list; nil if it is empty.
func first[T any](all []*T) *T {
	for _, v := range all {
		return v
	}
	return nil
}
