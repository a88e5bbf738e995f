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
)

// The loads that injected faults need: programs that write (a crowd, where all that matters happens until a fault is noticed), clients
// that ask for addresses, runs, deadlines.
var (
	crowd    = size{writers: 24, watchers: 1}
	programs = size{writers: 8, watchers: 2}
	clients  = size{writers: 1, watchers: 1, clients: 2}
	runs     = size{writers: 1, watchers: 1, racks: 1, machines: 3, loops: 3}
	waits    = size{writers: 1, watchers: 1, late: 1}
)

// faultEnv tells a program that is built with faults which one it has.
const faultEnv = "TRIVET_FAULT"

// injected are the faults, one for each guarantee, and what brings it to light.
var injected = []struct {
	bug    string // of internal/faultinject
	want   error
	heads  int
	load   size
	faults []kind
	// The load lasts at least for so long, and what has begun may then take so much longer.
	lasts, settles time.Duration
}{
	{"WriteLost", ErrWriteLost, 3, crowd, []kind{named("kill the leader")}, 0, settled},
	{"StaleRead", ErrStaleRead, 3, crowd, []kind{{name: "cut off a follower", hold: 2 * time.Second, begin: cutFollower}}, 0, settled},
	{"WatchSkipped", ErrWatchSkipped, 1, programs, nil, 2 * time.Second, settled},
	{"WatchRepeated", ErrWatchRepeated, 1, programs, []kind{named("kill")}, 0, settled},
	{"WatchReordered", ErrWatchReordered, 1, programs, nil, 2 * time.Second, settled},
	{"AddressTwice", ErrAddressTwice, 1, clients, nil, 2 * time.Second, settled},
	{"MachineTwice", ErrMachineTwice, 1, runs, nil, 2 * time.Second, time.Second},
	{"ActionTwice", ErrActionTwice, 1, runs, slices.Repeat([]kind{named("reset a machine")}, 5), 0, 2 * time.Second},
	{"RunStuck", ErrRunStuck, 1, runs, nil, time.Second, 5 * time.Second},
	{"OldEpoch", ErrOldEpoch, 1, runs, nil, 5 * time.Second, time.Second},
	{"DeadlineEarly", ErrDeadlineEarly, 1, waits, nil, 8 * time.Second, time.Second},
	{"DeadlineNever", ErrDeadlineLate, 1, waits, nil, lateAfter + 2*time.Second, time.Second},
}

// The checker finds in real programs what it is there for: each guarantee has a bug that breaks it.
func TestInjectedFaults(t *testing.T) {
	if testing.Short() {
		t.Skip("takes minutes")
	}
	program := filepath.Join(t.TempDir(), "trivet")
	if err := build(t.Context(), program, "faultinject", "faultinject"); err != nil {
		t.Fatal(err)
	}
	for _, s := range injected {
		t.Run(s.bug, func(t *testing.T) {
			t.Setenv(faultEnv, s.bug)
			tr := begin(t, seedOf(t), plan{program: program, heads: s.heads, load: s.load})
			tr.load.settled = s.settles
			for _, k := range s.faults {
				nap(t.Context(), time.Second)
				if err := tr.suffer(t.Context(), k); err != nil {
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

// cutFollower cuts a head off that does not lead: the others go on without it at once.
func cutFollower(ctx context.Context, t *trial) (string, func() error, error) {
	l, err := t.leader(ctx)
	if err != nil {
		return "", nil, err
	}
	h := t.heads[slices.IndexFunc(t.heads, func(h *head) bool { return h != l })]
	return h.port, t.fabric.heal, t.fabric.apart(h.port)
}

// The program that people get has no trace of the bugs, nor of a clock of its own.
func TestNoInjectedFaults(t *testing.T) {
	text, err := os.ReadFile(program(t))
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
