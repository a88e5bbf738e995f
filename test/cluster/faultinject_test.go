package cluster

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/testhead"
)

// The loads that injected faults need: programs that write (many, where all that matters happens until a fault is
// noticed), clients that request addresses, runs, deadlines.
var (
	many     = size{writers: 24, watchers: 1}
	programs = size{writers: 8, watchers: 2}
	clients  = size{writers: 1, watchers: 1, clients: 2}
	runs     = size{writers: 1, watchers: 1, racks: 1, machines: 3, loops: 3}
	waits    = size{writers: 1, watchers: 1, late: 1}
	bmcs     = size{writers: 1, watchers: 1, racks: 1, machines: 4, managed: 1, loops: 3}
)

// faultEnv names the environment variable that selects the fault of a program that is built with faults.
const faultEnv = "TRIVET_FAULT"

// injected are the faults, one for each guarantee, and what exposes it.
var injected = []struct {
	bug    string // of internal/faultinject
	want   error
	heads  int
	load   size
	faults []kind
	// The load lasts at least for so long, and what has begun may then take so much longer.
	lasts, settles time.Duration
	soak           bool // in make soak only
}{
	{"WriteLost", ErrWriteLost, 3, many, repeated("leader sends nothing", 2), 0, settled, true},
	{"StaleRead", ErrStaleRead, 3, many,
		[]kind{{name: "cut off a follower", hold: 2 * time.Second, begin: cutFollower}}, 0, settled, true},
	{"WatchSkipped", ErrWatchSkipped, 1, programs, nil, 2 * time.Second, settled, false},
	{"WatchRepeated", ErrWatchRepeated, 1, programs, []kind{named("kill")}, 0, settled, true},
	{"WatchReordered", ErrWatchReordered, 1, programs, nil, 2 * time.Second, settled, true},
	{"AddressTwice", ErrAddressTwice, 1, clients, nil, 2 * time.Second, settled, false},
	{"MachineTwice", ErrMachineTwice, 1, runs, nil, 2 * time.Second, time.Second, false},
	{"ActionTwice", ErrActionTwice, 1, runs, []kind{{name: "reset a machine at work", begin: resetAtWork}}, 0,
		time.Minute, true},
	{"RunStuck", ErrRunStuck, 1, runs, nil, time.Second, 5 * time.Second, true},
	{"OldEpoch", ErrOldEpoch, 1, runs, nil, 5 * time.Second, time.Second, true},
	{"DeadlineEarly", ErrDeadlineEarly, 1, waits, nil, 8 * time.Second, time.Second, false},
	{"BMCShared", ErrBMCShared, 3, bmcs, repeated("BMCs do nothing", 3), 0, settled, true},
	{"WriteRate", ErrWriteRate, 3, bmcs, repeated("BMCs answer with errors", 3), 0, settled, true},
	{"FullStore", ErrFullStore, 1, runs, repeated("fill the store", 1), 0, 5 * time.Second, true},
	{"DeadlineNever", ErrDeadlineLate, 1, waits, nil, lateAfter + 2*time.Second, time.Second, true},
}

// The checker finds each violation in real programs: each guarantee has a fault that breaks it.
func TestInjectedFaults(t *testing.T) {
	if testing.Short() {
		t.Skip("takes minutes")
	}
	program := filepath.Join(t.TempDir(), "trivet")
	if err := build(t.Context(), program, "faultinject", "-tags=faultinject"); err != nil {
		t.Fatal(err)
	}
	for _, s := range injected {
		t.Run(s.bug, func(t *testing.T) {
			if s.soak {
				soak(t)
			}
			t.Setenv(faultEnv, s.bug)
			tr := begin(t, seedOf(t), plan{program: program, heads: s.heads, load: s.load,
				quota: smallQuota})
			tr.load.settled = s.settles
			for _, k := range s.faults {
				nap(t.Context(), time.Second)
				if err := tr.inject(t.Context(), k); err != nil {
					t.Log(err) // a bug may keep it from healing
				}
			}
			nap(t.Context(), s.lasts)
			found := tr.end(t)
			if !slices.ContainsFunc(found, func(err error) bool { return errors.Is(err, s.want) }) {
				t.Errorf("not found: %v; found: %v", s.want, errors.Join(found...))
			}
			t.Log(errors.Join(found...))
		})
	}
}

func repeated(fault string, n int) []kind { return slices.Repeat([]kind{named(fault)}, n) }

// cutFollower cuts a head off that does not lead: the others continue without it at once.
func cutFollower(ctx context.Context, t *trial) (string, func() error, error) {
	l, err := t.leader(ctx)
	if err != nil {
		return "", nil, err
	}
	h := t.heads[slices.IndexFunc(t.heads, func(h *head) bool { return h != l })]
	return h.port, t.fabric.heal, t.fabric.isolate(h.port)
}

// resetAtWork powers a machine off and on that has completed an action of its run and not all of them. Its reset is
// believed once its agent counts as silent, and the run ends after that.
func resetAtWork(ctx context.Context, t *trial) (string, func() error, error) {
	ctx, cancel := context.WithTimeout(ctx, healTimeout)
	defer cancel()
	for {
		all, _, err := client.Of[trivet.Workflow](t.load.sdk).List(ctx, client.ListOptions{})
		if err != nil {
			return "", nil, err
		}
		if i := slices.IndexFunc(all, atWork); i >= 0 {
			m := all[i].Spec.Machine
			t.load.power("on", m)
			return m, func() error { return nil }, nil
		}
		nap(ctx, 10*time.Millisecond)
	}
}

// atWork reports whether the first action of a run is done and a later one, of the template "install", waits.
func atWork(w *trivet.Workflow) bool {
	has := func(step string, state trivet.StepState) bool {
		return slices.ContainsFunc(w.Status.Steps, func(s trivet.Step) bool { return s.Name == step && s.State == state })
	}
	return has("wipe", trivet.StepDone) && has("seed", trivet.StepWaiting)
}

// The released program has no trace of the faults, nor of a clock of its own.
func TestNoInjectedFaults(t *testing.T) {
	text, err := os.ReadFile(testhead.Program(t))
	if err != nil {
		t.Fatal(err)
	}
	traces := []string{faultEnv, "internal/faultinject", clockEnv}
	for _, s := range injected {
		traces = append(traces, string(s.bug))
	}
	for _, trace := range traces {
		if bytes.Contains(text, []byte(trace)) {
			t.Errorf("it contains %q", trace)
		}
	}
}
