package hostnet

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/store"
)

// Times of a move. A head that is dead or stopped loses the address within lifetime and a fifth, measured; another one gets
// the lease no sooner than three quarters of ttl after that head's end, and probes before it takes the address (probe.go). A
// head that is cut off from the store gives the address up at three quarters of ttl.
const (
	ttl      = 1600 * time.Millisecond
	lifetime = time.Second // the kernel counts in whole seconds
	refresh  = lifetime / 4
	// Heads that are new to an address announce it with each refresh for announceFor, then every announceEvery, for those
	// who did not listen.
	announceFor, announceEvery = 3 * time.Second, 10 * time.Second
)

// Run holds the address whenever it can, until ctx ends. The address is gone from here when it returns.
func (v *VIP) Run(ctx context.Context) {
	for ctx.Err() == nil {
		err := v.Store.WithLease(ctx, v.lease(), ttl, v.hold)
		if err != nil && ctx.Err() == nil && !errors.Is(err, trivet.ErrFenced) {
			v.Log.Error("this head cannot have the shared address", "address", v.Address, "interface", v.Interface, "error", err)
			wait(ctx, 5*time.Second) // others try meanwhile
		}
	}
}

func (v *VIP) lease() string { return "vip-" + strings.ReplaceAll(v.Address.Addr().String(), ".", "-") }

// hold has the address until ctx ends, unless another host has it.
func (v *VIP) hold(ctx context.Context, l *store.Lease) error {
	if err := v.probe(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	return v.keep(ctx, l.Held)
}

// keep has the address until ctx ends, which is when the lease is not surely held any more. A process that was stopped may see
// ctx end later than it goes on here, so the lease is asked as well, before each thing that others would notice.
func (v *VIP) keep(ctx context.Context, held func() bool) (err error) {
	defer func() {
		v.held.Store(false)
		err = errors.Join(err, v.drop())
		v.Log.Info("gave up the shared address", "address", v.Address)
	}()
	announced := time.Time{}
	for since := time.Now(); ctx.Err() == nil && held(); wait(ctx, refresh) {
		mac, err := v.set()
		if err != nil {
			return err
		}
		if ctx.Err() != nil || !held() { // it was stopped just now
			break
		}
		if !v.held.Swap(true) {
			v.Log.Info("has the shared address", "address", v.Address, "interface", v.Interface)
		}
		if now := time.Now(); now.Sub(since) < announceFor || now.Sub(announced) >= announceEvery {
			announced = now
			if err := v.announce(mac); err != nil {
				v.Log.Warn("the shared address is not announced", "address", v.Address, "error", err)
			}
		}
	}
	return nil
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
