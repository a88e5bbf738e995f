package fleet_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/fleet"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/storetest"
)

const otherMAC = "52:54:00:00:00:02"

// helloOf sends the hello of a machine's first agent.
func (r *rack) helloOf(machine, mac string) error {
	_, err := r.Hello(r.Context(), &trivet.Hello{MAC: mac, Key: "key", BootID: "boot"},
		auth.BootToken{Machine: machine, MAC: mac})
	return err
}

// writes returns how many transactions a function commits.
func (r *rack) writes(do func()) int64 {
	before := r.Store.Revision()
	do()
	return r.Store.Revision() - before
}

// An agent that reports without an end, and a machine that boots again and again, write a burst and then a few times in
// a second. Other machines are not limited by that.
func TestAgentFloodIsBounded(t *testing.T) {
	r := newRack(t)
	r.provision("p")
	r.must(r.hello("k1", 0))
	const reportBurst, reportRate, helloBurst, helloRate, floods = 256, 5, 32, 0.2, 1000
	began := time.Now()
	refused, seq := 0, int64(0)
	n := r.writes(func() {
		for range floods {
			err := r.report(1, "k1", trivet.Report{Seq: seq + 1, Action: "work", Attempt: 1, State: trivet.StepRunning})
			if errors.Is(err, fleet.ErrTooOften) {
				refused++
				continue
			}
			r.must(err)
			seq++
		}
	})
	most := reportBurst + 1 + int64(time.Since(began).Seconds()*reportRate)
	if n > most || n < reportBurst || int(n)+refused != floods {
		t.Errorf("%d reports made %d transactions, of at most %d; %d were refused", floods, n, most, refused)
	}
	if got := r.reasons(); got != "Claimed Granted" {
		t.Errorf("its events are %s", got)
	}

	for range 2 * helloBurst { // of another host, with an old boot script
		if err := r.hello("old", 0); !errors.Is(err, trivet.ErrFenced) {
			t.Fatal(err)
		}
	}
	r.release("p")
	began = time.Now()
	n = r.writes(func() {
		for i := range floods {
			err := r.hello(fmt.Sprint("h", i), r.machine().Status.Epoch)
			if err != nil && !errors.Is(err, fleet.ErrTooOften) {
				t.Fatal(err)
			}
		}
	})
	if most := helloBurst + 1 + int64(time.Since(began).Seconds()*helloRate); n > most || n < helloBurst-1 {
		t.Errorf("%d hellos made %d transactions, of at most %d", floods, n, most)
	}

	other := trivet.Machine{Meta: trivet.Meta{Name: "m2"}, Spec: trivet.MachineSpec{NICs: []trivet.NIC{{MAC: otherMAC}}},
		Status: trivet.MachineStatus{State: trivet.MachineAvailable}}
	r.write(func(tx *store.Tx) error {
		return errors.Join(r.Machines.In(tx).Create(&other), r.MACs.In(tx).Create(&trivet.MAC{
			Meta: trivet.Meta{Name: otherMAC}, Spec: trivet.MACSpec{Machine: "m2"}}))
	})
	r.must(r.helloOf("m2", otherMAC))
	if m, err := r.Machines.Get("m2"); err != nil || m.Status.Epoch != 1 {
		t.Errorf("the hello of another machine: %+v, %v", m, err)
	}
}

// However many events a machine has, its newest are kept, in a few keys of the store, and those of others stay.
func TestEventFloodOfOneMachine(t *testing.T) {
	member := storetest.Member(t)
	r := rackOn(t, fleet.New(storetest.On(t, member, store.Options{}, state.New), "head0"))
	other := r.free(1, nil)
	for range 3 {
		r.must(r.Quarantine(t.Context(), other, "before"))
	}
	const floods = 2*trivet.EventsPerSubject + 88
	for range floods {
		r.must(r.Quarantine(t.Context(), "m1", "noise"))
	}
	r.must(r.Quarantine(t.Context(), other, "after"))
	newest := int64(0)
	mine := r.events(trivet.EventPrefix("machine/m1", r.machine().UID))
	for _, e := range mine {
		newest = max(newest, e.Spec.Seq)
	}
	if len(mine) != trivet.EventsPerSubject || newest != floods {
		t.Errorf("%d events are kept, up to number %d", len(mine), newest)
	}
	m, err := r.Machines.Get(other)
	r.must(err)
	if got := r.events(trivet.EventPrefix("machine/"+other, m.UID)); len(got) != 4 || got[3].Spec.Message != "after" {
		t.Errorf("of the other machine %d events are kept", len(got))
	}
	keys, err := member.Client().Get(t.Context(), "/trivet-history/", clientv3.WithPrefix(), clientv3.WithCountOnly())
	r.must(err)
	if most := int64(trivet.EventsPerSubject/16 + 16 + 4); keys.Count > most {
		t.Errorf("the events use %d keys, want at most %d", keys.Count, most)
	}
}
