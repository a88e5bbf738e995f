package addressing_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/addressing"
	"github.com/trivet-project/trivet/internal/store"
)

// forged is the MAC of an invented client.
func forged(i int) string { return fmt.Sprintf("52:54:00:00:66:%02x", i) }

// oneRange lets known and unknown machines share two addresses.
func (f *fixture) oneRange(t *testing.T) {
	t.Helper()
	_, err := f.Store.Update(t.Context(), func(tx *store.Tx) error {
		n, err := f.Networks.In(tx).Get("lan")
		must(t, err)
		n.Spec.Ranges = []trivet.Range{span("10.0.0.100", "10.0.0.101", "")}
		return f.Networks.In(tx).Put(n)
	})
	must(t, err)
}

// Clients that a neighbour invented have all addresses; a known machine gets one of them, and they are refused.
func TestKnownMachineEvictsUnknown(t *testing.T) {
	t.Parallel()
	f := newFixture(t, addressing.Config{})
	f.oneRange(t)
	held := map[netip.Addr]string{f.bind(t, forged(1)): forged(1), f.bind(t, forged(2)): forged(2)}
	if a, err := f.Offer(f.request(t, forged(3))); err == nil {
		t.Errorf("another unknown client is offered %s", a)
	}
	for a := range held { // not by asking for it
		if _, err := f.Bind(t.Context(), f.request(t, knownMAC), a); !errors.Is(err, addressing.ErrRefused) {
			t.Errorf("%s without an offer: %v", a, err)
		}
	}
	a := f.bind(t, knownMAC)
	if record := f.Leased(a); record == nil || record.Spec.Machine != "m1" {
		t.Errorf("%s is %+v", a, record)
	}
	if _, err := f.Bind(t.Context(), f.request(t, held[a]), a); !errors.Is(err, addressing.ErrRefused) {
		t.Errorf("the evicted client renews: %v", err)
	}
}

// Offers that no one accepts keep no address from a known machine.
func TestForgedDiscovers(t *testing.T) {
	t.Parallel()
	f := newFixture(t, addressing.Config{})
	f.oneRange(t)
	for i := range 2 {
		_, err := f.Offer(f.request(t, forged(i)))
		must(t, err)
	}
	f.bind(t, knownMAC)
}

// A host behind one port of a switch gets few addresses, however many clients it invents; others still get theirs.
func TestNewClientsAreLimited(t *testing.T) {
	t.Parallel()
	f := newFixture(t, addressing.Config{})
	bind := func(mac, port string) error {
		r := f.request(t, mac)
		r.Port = port
		a, err := f.Offer(r)
		must(t, err)
		_, err = f.Bind(t.Context(), r, a)
		return err
	}
	for i := range 16 {
		must(t, bind(forged(i), "7"))
	}
	if err := bind(forged(16), "7"); !errors.Is(err, trivet.ErrUnavailable) {
		t.Errorf("a further client of that port: %v", err)
	}
	must(t, bind(forged(0), "7")) // a renewal
	must(t, bind(forged(17), "8"))
	must(t, bind(knownMAC, "7"))
}

// The wall clock of a head does not end leases, and does not extend them.
func TestLeasesByAnotherWallClock(t *testing.T) {
	t.Parallel()
	f := newFixture(t, addressing.Config{})
	a := f.bind(t, unknownMAC)
	for _, off := range []time.Duration{-48 * time.Hour, 48 * time.Hour} {
		_, err := f.Store.Update(t.Context(), func(tx *store.Tx) error {
			record, err := f.Addresses.In(tx).Get(a.String())
			must(t, err)
			record.Status.Until = time.Now().Add(off)
			return f.Addresses.In(tx).Put(record)
		})
		must(t, err)
		if record := f.Leased(a); record == nil || f.Expired(record) {
			t.Errorf("a clock that is off by %s: the lease has ended", off)
		}
		if _, err := f.Bind(t.Context(), f.request(t, forged(1)), a); !errors.Is(err, addressing.ErrRefused) {
			t.Errorf("a clock that is off by %s: another client: %v", off, err)
		}
	}
}

// A head without a quorum confirms only what its copy shows, for a short time: the majority may decide otherwise.
func TestLeaseWithoutQuorum(t *testing.T) {
	t.Parallel()
	var cutOff atomic.Bool
	f := newFixture(t, addressing.Config{Quorum: func() bool { return !cutOff.Load() }})
	known, fixed, unknown := f.bind(t, knownMAC), f.bind(t, fixedMAC), f.bind(t, unknownMAC)
	cutOff.Store(true)
	for mac, a := range map[string]netip.Addr{knownMAC: known, fixedMAC: fixed, unknownMAC: unknown} {
		lease, err := f.Bind(t.Context(), f.request(t, mac), a)
		if err != nil || lease != 2*time.Minute {
			t.Errorf("%s: %s, %v", mac, lease, err)
		}
	}
	// A head that was started since does not know how old the lease is.
	late := &fixture{f.Tables, addressing.New(addressing.Config{Tables: f.Tables,
		Quorum: func() bool { return false }})}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = late.Run(ctx) }()
	if lease, err := late.Bind(t.Context(), late.request(t, unknownMAC), unknown); !errors.Is(err, trivet.ErrUnavailable) {
		t.Errorf("a lease of unknown age: %s, %v", lease, err)
	}
	stop()
	<-done
}
