package hostnet

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/wait"
)

// Times of a failover. A host that is dead or stopped loses the address within 1.2 times lifetime, as measured;
// another host gets the lease at least three quarters of ttl later, and probes before it takes the address
// (probe.go). A host that cannot renew the lease removes the address at three quarters of ttl.
const (
	ttl      = 1600 * time.Millisecond
	lifetime = time.Second // the kernel counts in whole seconds
	refresh  = lifetime / 4
	// The new host of the address announces it with each refresh for announceFor, then every announceEvery, for
	// hosts that missed it.
	announceFor, announceEvery = 3 * time.Second, 10 * time.Second
)

// Run has the address whenever it holds the lease, until ctx ends. This host does not have the address when Run
// returns.
func (v *VIP) Run(ctx context.Context) {
	for ctx.Err() == nil {
		err := v.WithLease(ctx, v.lease(), ttl, v.take)
		if err != nil && ctx.Err() == nil && !errors.Is(err, trivet.ErrFenced) {
			v.Log.Error("cannot take the shared address", "address", v.Address, "interface", v.Interface, "error", err)
			_ = wait.Sleep(ctx, 5*time.Second) // other hosts may take it meanwhile
		}
	}
}

// lease is the name of the address's lease.
func (v *VIP) lease() string { return "vip-" + strings.ReplaceAll(v.Address.Addr().String(), ".", "-") }

// take has the address until ctx ends, unless another host has it.
func (v *VIP) take(ctx context.Context, held func() bool) error {
	if err := v.probe(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	return v.keep(ctx, held)
}

// keep has the address until ctx ends: the lease may be lost then. A process that was stopped may continue here
// before its ctx ends, so that held is checked as well, before each change that other hosts can observe.
func (v *VIP) keep(ctx context.Context, held func() bool) (err error) {
	defer func() {
		v.held.Store(false)
		err = errors.Join(err, v.drop())
		v.Log.Info("removed the shared address", "address", v.Address)
	}()
	announced := time.Time{}
	for since := time.Now(); ctx.Err() == nil && held(); _ = wait.Sleep(ctx, refresh) {
		mac, err := v.set()
		if err != nil {
			return err
		}
		if ctx.Err() != nil || !held() { // the process was stopped meanwhile
			break
		}
		if !v.held.Swap(true) {
			v.Log.Info("took the shared address", "address", v.Address, "interface", v.Interface)
		}
		if now := time.Now(); now.Sub(since) < announceFor || now.Sub(announced) >= announceEvery {
			announced = now
			if err := v.announce(mac); err != nil {
				v.Log.Warn("cannot announce the shared address", "address", v.Address, "error", err)
			}
		}
	}
	return nil
}
