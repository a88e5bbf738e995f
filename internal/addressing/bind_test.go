package addressing_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/addressing"
	"github.com/trivet-project/trivet/internal/ipam"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/storetest"
)

// term is the leader that a store asks for before it sends a transaction: transactions wait while it is held.
type term struct {
	mu   sync.Mutex
	held chan struct{} // guarded by mu; nil: it is not held
	err  error         // guarded by mu

	asked atomic.Int64 // since it is held
}

func (l *term) get(ctx context.Context) (over <-chan struct{}, err error) {
	l.mu.Lock()
	held, err := l.held, l.err
	l.mu.Unlock()
	if held == nil {
		return nil, err
	}
	l.asked.Add(1)
	select {
	case <-held:
		return nil, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: no leader", trivet.ErrUnavailable)
	}
}

func (l *term) hold() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held = make(chan struct{})
}

func (l *term) release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.held)
	l.held = nil
}

func (l *term) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = err
}

// binding is a port that binds what it was offered.
type binding struct {
	mac     string
	address netip.Addr
	err     error
}

// bindAll offers addresses to unknown ports and binds them all at once.
func (f *fixture) bindAll(t *testing.T, n int) (offered []netip.Addr, done chan binding) {
	t.Helper()
	done = make(chan binding, n)
	for i := range n {
		r := f.request(t, forged(i))
		a, err := f.Offer(r)
		must(t, err)
		offered = append(offered, a)
		go func() {
			_, err := f.Bind(t.Context(), r, a)
			done <- binding{r.MAC, a, err}
		}()
	}
	return offered, done
}

// No lease is acknowledged before it is committed. One whose address another head assigned meanwhile is refused, and
// those that were written with it are acknowledged.
func TestLeasesOfOneGroup(t *testing.T) {
	t.Parallel()
	member, leader := storetest.Member(t), &term{}
	f := fixtureOn(t, addressing.Config{Tables: storetest.On(t, member, store.Options{Term: leader.get}, state.New)})
	other := storetest.On(t, member, store.Options{Head: "other"}, state.New)
	leader.hold()
	const ports = 12
	offered, done := f.bindAll(t, ports)
	for leader.asked.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	if len(done) > 0 || slices.ContainsFunc(offered, func(a netip.Addr) bool { return f.Leased(a) != nil }) {
		t.Error("a lease was acknowledged or written while nothing can be committed")
	}
	const loser = 7
	_, err := other.Store.Update(t.Context(), func(tx *store.Tx) error {
		return other.Addresses.In(tx).Create(&trivet.Address{Meta: trivet.Meta{Name: offered[loser].String()},
			Spec:   trivet.AddressSpec{Network: "lan", MAC: unknownMAC},
			Status: trivet.AddressStatus{Lasts: trivet.Duration(time.Hour)}})
	})
	must(t, err)
	leader.release()
	for range ports {
		b := <-done
		record, err := f.Addresses.Get(b.address.String())
		must(t, err)
		if b.mac == forged(loser) {
			if !errors.Is(b.err, addressing.ErrRefused) || record.Spec.MAC != unknownMAC {
				t.Errorf("the address that another head assigned: %v; it is %+v", b.err, record.Spec)
			}
		} else if b.err != nil || record.Spec.MAC != b.mac {
			t.Errorf("%s: %v; the record is %+v", b.mac, b.err, record.Spec)
		}
	}
}

// A client that sends its request again while the record is being written causes one write, and each request is
// answered after it.
func TestRetransmitsShareTheWrite(t *testing.T) {
	t.Parallel()
	leader := &term{}
	f := fixtureOn(t, addressing.Config{
		Tables: storetest.On(t, storetest.Member(t), store.Options{Term: leader.get}, state.New)})
	a, err := f.Offer(f.request(t, unknownMAC))
	must(t, err)
	before := f.Store.Revision()
	leader.hold()
	const copies = 5
	done := make(chan error, copies)
	for range copies {
		r := f.request(t, unknownMAC)
		go func() { _, err := f.Bind(t.Context(), r, a); done <- err }()
	}
	time.Sleep(1100 * time.Millisecond) // a record that is written later would end later
	if len(done) > 0 {
		t.Error("acknowledged before the commit")
	}
	leader.release()
	for range copies {
		must(t, <-done)
	}
	if writes := f.Store.Revision() - before; writes != 1 {
		t.Errorf("%d writes; want 1", writes)
	}
}

// A head that cannot commit acknowledges no new lease: it is cut off, the store is full, or no leader answers.
func TestNoLeaseWithoutCommit(t *testing.T) {
	t.Parallel()
	full, leader := atomic.Bool{}, &term{}
	f := fixtureOn(t, addressing.Config{Tables: storetest.On(t, storetest.Member(t), store.Options{Term: leader.get,
		Admit: func(int, int64) error {
			if full.Load() {
				return fmt.Errorf("%w: the store is full", trivet.ErrUnavailable)
			}
			return nil
		}}, state.New)})
	refused := func(why string) {
		t.Helper()
		offered, done := f.bindAll(t, 8)
		for range offered {
			if b := <-done; b.err == nil || errors.Is(b.err, addressing.ErrRefused) {
				t.Errorf("%s: %s: %v", why, b.mac, b.err)
			}
		}
		if n := f.Addresses.Len(); n > 0 {
			t.Errorf("%s: %d addresses were written", why, n)
		}
	}
	full.Store(true)
	refused("full")
	full.Store(false)
	leader.fail(fmt.Errorf("%w: no quorum", trivet.ErrUnavailable))
	refused("cut off")
	leader.fail(nil)
	leader.hold()
	refused("no leader answers")
	leader.release()
}

// A prediction is what a proposal would be. It keeps no address from another port, and no network from being searched.
func TestPredictNotesNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t, addressing.Config{})
	r := f.request(t, knownMAC)
	other := f.request(t, fixedMAC)
	m2 := *other.Machine
	m2.Spec.NICs = []trivet.NIC{{MAC: fixedMAC}}
	other.Machine = &m2
	propose := func(predict bool) string {
		propose := f.Propose
		if predict {
			propose = f.Predict
		}
		p, err := propose(r.Machine)
		must(t, err)
		_, err = f.Store.Update(t.Context(), func(tx *store.Tx) error {
			a, _, err := p.Assign(tx)
			must(t, err)
			other.Hint = ip(a.Name)
			return errTried
		})
		if !errors.Is(err, errTried) {
			t.Fatal(err)
		}
		return other.Hint.String()
	}
	predicted := propose(true)
	if a, err := f.Offer(other); err != nil || a != other.Hint {
		t.Errorf("after the prediction of %s, another port is offered %s, %v", other.Hint, a, err)
	}
	f.Withdraw(other.Hint, fixedMAC)
	if proposed := propose(false); proposed != predicted {
		t.Errorf("predicted %s, proposed %s", predicted, proposed)
	}
	a, err := f.Offer(other)
	if err != nil || a == other.Hint {
		t.Errorf("after the proposal of %s, another port is offered %s, %v", other.Hint, a, err)
	}
	f.Withdraw(a, fixedMAC)

	for _, a := range []string{"10.0.0.100", "10.0.0.101"} {
		f.take(t, a)
	}
	if p, err := f.Predict(r.Machine); !errors.Is(err, ipam.ErrFull) {
		t.Errorf("in a full network: %+v, %v", p, err)
	}
	_, err = f.Store.Update(t.Context(), func(tx *store.Tx) error { return f.Addresses.In(tx).Delete("10.0.0.100") })
	must(t, err)
	if a, err := f.Offer(r); err != nil || a != ip("10.0.0.100") {
		t.Errorf("when an address is free again: %s, %v", a, err)
	}
}

var errTried = errors.New("tried only")

// take assigns an address to another machine.
func (f *fixture) take(t *testing.T, address string) {
	t.Helper()
	_, err := f.Store.Update(t.Context(), func(tx *store.Tx) error {
		return f.Addresses.In(tx).Create(&trivet.Address{Meta: trivet.Meta{Name: address}, Spec: trivet.AddressSpec{
			Network: "lan", MAC: "52:54:00:00:01:" + address[len(address)-2:], Machine: "m3", MachineUID: "u3"}})
	})
	must(t, err)
}

// A head that has not observed yet that another one assigned an address to a machine's port refuses a further one, by
// a request and by a claim of the machine.
func TestNoSecondAddressOfAMachine(t *testing.T) {
	t.Parallel()
	member, leader := storetest.Member(t), &term{}
	f := fixtureOn(t, addressing.Config{Tables: storetest.On(t, member, store.Options{Term: leader.get}, state.New)})
	other := storetest.On(t, member, store.Options{Head: "other"}, state.New)
	r := f.request(t, knownMAC)
	a, err := f.Offer(r)
	must(t, err)
	claim, err := f.Propose(r.Machine)
	must(t, err)
	leader.hold()
	bound, claimed := make(chan error), make(chan error)
	go func() { _, err := f.Bind(t.Context(), r, a); bound <- err }()
	go func() {
		_, err := f.Store.Update(t.Context(), func(tx *store.Tx) error { _, _, err := claim.Assign(tx); return err })
		claimed <- err
	}()
	for leader.asked.Load() < 2 { // both have decided
		time.Sleep(time.Millisecond)
	}
	has := map[string]string{"10.0.0.100": "10.0.0.101", "10.0.0.101": "10.0.0.100"}[a.String()]
	_, err = other.Store.Update(t.Context(), func(tx *store.Tx) error {
		return other.Addresses.In(tx).Create(&trivet.Address{Meta: trivet.Meta{Name: has}, Spec: trivet.AddressSpec{
			Network: "lan", MAC: knownMAC, Machine: r.Machine.Name, MachineUID: r.Machine.UID}})
	})
	must(t, err)
	leader.release()
	if err := <-bound; !errors.Is(err, addressing.ErrRefused) {
		t.Errorf("a request got a second address: %v", err)
	}
	if err := <-claimed; !errors.Is(err, trivet.ErrConflict) {
		t.Errorf("a claim assigned a second address: %v", err)
	}
	if all := f.AddressesOf(knownMAC); len(all) != 1 || all[0].Name != has {
		t.Errorf("the port has %d addresses", len(all))
	}
	if again := f.bind(t, knownMAC); again.String() != has {
		t.Errorf("then it is offered %s; it has %s", again, has)
	}
}

// A head that read a machine before it was renamed writes the address of the machine by its new name: the sweep of what
// refers to machines that are gone would delete it otherwise.
func TestBindOfRenamedMachine(t *testing.T) {
	t.Parallel()
	f := newFixture(t, addressing.Config{})
	r := f.request(t, knownMAC)
	_, err := f.Store.Update(t.Context(), func(tx *store.Tx) error {
		m, err := f.Machines.In(tx).Get("m1")
		must(t, err)
		m.Name = "r1-u12"
		return errors.Join(f.Machines.In(tx).Rename("m1", m), f.MACs.In(tx).Put(&trivet.MAC{
			Meta: trivet.Meta{Name: knownMAC}, Spec: trivet.MACSpec{Machine: m.Name, MachineUID: m.UID}}))
	})
	must(t, err)
	a, err := f.Offer(r)
	must(t, err)
	if _, err := f.Bind(t.Context(), r, a); err != nil {
		t.Fatal(err)
	}
	if record, err := f.Addresses.Get(a.String()); err != nil || record.Spec.Machine != "r1-u12" ||
		record.Spec.MachineUID != r.Machine.UID {
		t.Errorf("%+v, %v", record, err)
	}
}
