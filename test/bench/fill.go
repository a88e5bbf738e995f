package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/cluster"
	machines "github.com/trivet-project/trivet/internal/fleet"
	"github.com/trivet-project/trivet/internal/placement"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
)

// filler writes records into the store of a head that does not run, by the head's own code. One run is made step by
// step; the others are copies of it, with names of their own.
type filler struct {
	*machines.Fleet
	machine  *trivet.Machine // of the sample, and what it has left
	workflow *trivet.Workflow
	events   []*trivet.Event
}

const (
	sampleMAC   = "00:0c:02:00:00:01"
	fillWriters = 64
	fillTimeout = 10 * time.Minute // of one transaction: the computer may be busy
	maxFillRuns = trivet.FormerRuns + 1
	wholeSite   = "whole" // a label of all machines
)

// filled is what a filler has measured.
type filled struct {
	events int           // of each run
	wrote  time.Duration // all records
	chosen time.Duration // a machine by a label that all have
	oldest time.Duration // provision for a machine
}

// openFiller opens the store in the directory of a head, and calls do with it.
func (b *bench) openFiller(dir string, do func(*filler, *cluster.Member) error) error {
	keys, err := auth.Load(filepath.Join(dir, "keys"))
	if err != nil {
		return err
	}
	m, err := cluster.Start(b.ctx, cluster.Config{Dir: filepath.Join(dir, "store"), Name: "head0",
		Token: keys.CA.Root.Cluster()})
	if err != nil {
		return err
	}
	defer m.Close()
	s := store.New(m.Client(), store.Options{Head: "head0", Cipher: keys.Values(), Term: m.Term,
		AttemptTimeout: fillTimeout, Timeout: fillTimeout})
	f := &filler{Fleet: machines.New(state.New(s), "head0")}
	if err := s.Start(b.ctx); err != nil {
		return err
	}
	defer s.Close()
	return do(f, m)
}

// fill writes n machines with so many runs each into the store in the directory of a head.
func (b *bench) fill(dir string, n, runs int) (done filled, err error) {
	err = b.openFiller(dir, func(f *filler, m *cluster.Member) (err error) {
		done, err = b.fillWith(f, n, runs)
		if err == nil {
			err = tidy(b.ctx, m, f.Store.Revision())
		}
		return err
	})
	return done, err
}

// refill measures the decisions of a head whose directory was filled by another run.
func (b *bench) refill(dir string, runs int) (done filled, err error) {
	err = b.openFiller(dir, func(f *filler, _ *cluster.Member) error {
		m, err := f.Machines.Get(filledName(0))
		if err != nil {
			return err
		}
		done.events = int(m.Status.Events) / runs
		return f.decide(&done)
	})
	return done, err
}

func (b *bench) fillWith(f *filler, n, runs int) (done filled, err error) {
	if err := f.sample(b.ctx); err != nil {
		return done, fmt.Errorf("the sample: %w", err)
	}
	began := time.Now()
	g, ctx := errgroup.WithContext(b.ctx)
	g.SetLimit(fillWriters)
	for i := range n {
		g.Go(func() error { return f.write(ctx, i, runs) })
	}
	if err := g.Wait(); err != nil {
		return done, err
	}
	done.wrote, done.events = time.Since(began), len(f.events)
	if err := f.pending(b.ctx); err != nil {
		return done, err
	}
	return done, f.decide(&done)
}

// tidy drops what was replaced while the records were written, as heads do in an hour, and makes the file as small as
// what it holds, as they do when half of it is unused.
func tidy(ctx context.Context, m *cluster.Member, revision int64) error {
	if err := m.Compact(ctx, revision); err != nil {
		return err
	}
	return m.Defragment()
}

// sample makes a run of five actions on a machine, as netboot and the agent do.
func (f *filler) sample(ctx context.Context) error {
	const name = "sample"
	if _, err := f.Store.Update(ctx, func(tx *store.Tx) error {
		t := &trivet.Template{Meta: trivet.Meta{Project: "default", Name: "filled"}}
		for i := range noops {
			t.Spec.Actions = append(t.Spec.Actions, trivet.Action{Name: fmt.Sprint("noop-", i), Use: "noop"})
		}
		if err := f.Templates.In(tx).Create(t); err != nil {
			return err
		}
		m := newFilled(name, sampleMAC)
		if err := f.Machines.In(tx).Create(m); err != nil {
			return err
		}
		if err := f.MACs.In(tx).Create(newMAC(m)); err != nil {
			return err
		}
		return f.Provisions.In(tx).Create(&trivet.Provision{Meta: trivet.Meta{Project: "default", Name: name},
			Spec: trivet.ProvisionSpec{Template: "filled", Machine: name}})
	}); err != nil {
		return err
	}
	if err := f.Claim(ctx, "default/"+name); err != nil {
		return err
	}
	for _, step := range []string{trivet.StepDHCP, trivet.StepScript, trivet.StepKernel} {
		if err := f.ReachBootStep(ctx, name, step, 0); err != nil {
			return err
		}
	}
	if _, err := f.Hello(ctx, &trivet.Hello{MAC: sampleMAC, Key: "key", BootID: "boot", Inventory: inventory(0)},
		auth.BootToken{Machine: name, MAC: sampleMAC}); err != nil {
		return err
	}
	sync := &trivet.Sync{Machine: name, Epoch: 1, BootID: "boot"}
	for i := range noops {
		sync.Reports = append(sync.Reports, trivet.Report{Seq: int64(i + 1), Action: fmt.Sprint("noop-", i), Attempt: 1,
			State: trivet.StepDone})
	}
	err := f.Report(ctx, sync)
	if err == nil {
		f.machine, err = f.Machines.Get(name)
	}
	if err == nil {
		f.workflow, err = f.Workflows.Get("default/" + name + "-1")
	}
	if err == nil {
		f.events, err = f.Events.Under(ctx, trivet.EventPrefix("machine/"+name, f.machine.UID), "", 0)
	}
	if err == nil && f.workflow.Status.State != trivet.WorkflowSucceeded {
		err = fmt.Errorf("its run is %s", f.workflow.Status.State)
	}
	return err
}

func newFilled(name, mac string) *trivet.Machine {
	return &trivet.Machine{Meta: trivet.Meta{Name: name}, Spec: trivet.MachineSpec{Arch: "amd64", Rack: "r1",
		NICs: []trivet.NIC{{MAC: mac}}}, Status: trivet.MachineStatus{State: trivet.MachineAvailable}}
}

func newMAC(m *trivet.Machine) *trivet.MAC {
	return &trivet.MAC{Meta: trivet.Meta{Name: m.Spec.NICs[0].MAC},
		Spec: trivet.MACSpec{Machine: m.Name, MachineUID: m.UID}}
}

func filledName(i int) string { return fmt.Sprintf("filled%06d", i) }

// runsAtOnce is how many runs of a machine one transaction writes, with their events.
const runsAtOnce = 3

// write writes a machine that can be claimed, with its ended runs, which are former but the last one, and their events.
func (f *filler) write(ctx context.Context, i, runs int) error {
	m := newFilled(filledName(i), benchMAC(i))
	m.Labels = map[string]string{wholeSite: "yes", "rack": fmt.Sprint("r", i/40), "room": fmt.Sprint("room", i%20)}
	own := inventory(i)
	m.Status.Inventory, m.Status.Power = &own, f.machine.Status.Power
	m.Status.Epoch, m.Status.Events = int64(runs), int64(runs*len(f.events))
	m.Status.Workflow = fmt.Sprintf("%s-%d", m.Name, runs)
	for first := 1; first < runs+runsAtOnce; first += runsAtOnce {
		if _, err := f.Store.Update(ctx, func(tx *store.Tx) error {
			return f.writeRuns(tx, m, first, runs)
		}); err != nil {
			return err
		}
	}
	return nil
}

// writeRuns writes the runs of a machine from one on, with the first ones the machine, too. Those before become former
// ones, as by the sweep of runs.
func (f *filler) writeRuns(tx *store.Tx, m *trivet.Machine, first, runs int) error {
	if first == 1 {
		if err := f.Machines.In(tx).Create(m); err != nil { // it gets its UID
			return err
		}
		if err := f.MACs.In(tx).Create(newMAC(m)); err != nil {
			return err
		}
	}
	for run := max(1, first-runsAtOnce); run < min(first, runs); run++ {
		if err := f.Workflows.In(tx).Retire(fmt.Sprintf("default/%s-%d", m.Name, run)); err != nil {
			return err
		}
	}
	for run := first; run <= min(runs, first+runsAtOnce-1); run++ {
		if err := f.writeRun(tx, m, run); err != nil {
			return err
		}
	}
	return nil
}

func (f *filler) writeRun(tx *store.Tx, m *trivet.Machine, run int) error {
	w := &trivet.Workflow{Spec: f.workflow.Spec, Status: f.workflow.Status,
		Meta: trivet.Meta{Project: "default", Name: fmt.Sprintf("%s-%d", m.Name, run)}}
	w.Spec.Machine, w.Spec.MachineUID = m.Name, m.UID
	w.Spec.Provision, w.Spec.ProvisionUID = m.Name, f.workflow.Spec.ProvisionUID
	if err := f.Workflows.In(tx).Create(w); err != nil {
		return err
	}
	for i, sample := range f.events {
		e := &trivet.Event{Spec: sample.Spec}
		e.Spec.Subject, e.Spec.SubjectUID = "machine/"+m.Name, m.UID
		e.Spec.Seq, e.Spec.Workflow = int64((run-1)*len(f.events)+i+1), w.Name
		e.Name = trivet.EventName(m.UID, e.Spec.Seq)
		if err := f.Events.In(tx).Put(e); err != nil {
			return err
		}
	}
	return nil
}

// fillPending is how many provisions wait for a machine that there is not.
const fillPending = 1000

var pendingFor = map[string]string{"pool": "none"}

func (f *filler) pending(ctx context.Context) error {
	const batch = 50
	for i := 0; i < fillPending; i += batch {
		if _, err := f.Store.Update(ctx, func(tx *store.Tx) error {
			for j := i; j < i+batch; j++ {
				if err := f.Provisions.In(tx).Create(&trivet.Provision{
					Meta: trivet.Meta{Project: "default", Name: fmt.Sprintf("pending%04d", j)},
					Spec: trivet.ProvisionSpec{Template: "filled", Selector: pendingFor}}); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// decide measures decisions of the head.
func (f *filler) decide(done *filled) error {
	const times = 1000
	selector := map[string]string{wholeSite: "yes"}
	began := time.Now()
	for range times {
		if placement.First(f.FreeMachines(selector, &state.Search{Left: times}), &trivet.ProvisionSpec{Selector: selector},
			nil) == nil {
			return errors.New("no machine was found")
		}
	}
	done.chosen = time.Since(began) / times
	m := &trivet.Machine{Meta: trivet.Meta{Name: "freed", Labels: map[string]string{"pool": "none", wholeSite: "yes",
		"rack": "r1", "room": "room1"}}}
	began = time.Now()
	for range times {
		found := false
		for range f.WaitingFor(m) {
			found = true
			break
		}
		if !found {
			return errors.New("no provision was found")
		}
	}
	done.oldest = time.Since(began) / times
	return nil
}

// inventory is that of a server with four disks and four ports.
func inventory(i int) trivet.Inventory {
	inv := trivet.Inventory{Arch: "amd64", Vendor: "Dell Inc.", Product: "PowerEdge R650",
		Serial: fmt.Sprintf("ABC%04X", i), UUID: fmt.Sprintf("4c4c4544-0042-4310-8031-b4c0%08x", i), Firmware: "uefi",
		CPU: "Intel(R) Xeon(R) Gold 6338 CPU @ 2.00GHz", Cores: 128, MemoryMB: 515000,
		BMC: fmt.Sprintf("10.1.%d.%d", i>>8&255, i&255)}
	for n := range 4 {
		inv.Disks = append(inv.Disks, trivet.Disk{Name: fmt.Sprintf("/dev/nvme%dn1", n),
			Model: "SAMSUNG MZWLR3T8HBLS-00007", Bytes: 3840755982336, Bus: "nvme",
			Serial: fmt.Sprintf("S6EWNE0R%06d%d", i, n), WWN: fmt.Sprintf("eui.36345730%07d%04d", i, n)})
		inv.NICs = append(inv.NICs, trivet.NICInfo{Name: fmt.Sprintf("ens%df0np0", n), Driver: "ice",
			MAC: benchMAC(4*i + n)})
	}
	return inv
}
