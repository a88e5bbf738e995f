package cluster

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/agent/installer/journal"
	"github.com/trivet-project/trivet/internal/bmc"
)

const ms = time.Millisecond

// sound is a small history in which nothing is wrong. Each violation below is one change of it.
func sound() *History {
	step := func(state trivet.StepState, try int) map[string]stepReport {
		return map[string]stepReport{"wipe": {state, try}}
	}
	run := func(revision, epoch, acked int64, state string, steps map[string]stepReport) change {
		return change{Revision: revision, Type: "put", Kind: "Workflow", Name: "p-1", State: state, Machine: "m",
			Epoch: epoch, Acked: acked, Steps: steps}
	}
	machine := func(revision, epoch int64) change {
		return change{Revision: revision, Type: "put", Kind: "Machine", Name: "m", Epoch: epoch}
	}
	owner := func(revision int64, name, state string) change {
		return change{Revision: revision, Type: "put", Kind: "Provision", Name: name, State: state, Machine: "m"}
	}
	key := func(revision int64, value string) change {
		return change{Revision: revision, Type: "put", Kind: "Template", Name: "key0", Value: value}
	}
	managed := func(revision int64, sum uint32, intent, power string, at time.Duration) change {
		return change{Revision: revision, Type: "put", Kind: "Machine", Name: "managed", Sum: sum, Intent: intent,
			Power: power, At: at}
	}
	h := &History{
		Ops:   soundOps(),
		Final: map[string]string{"key0": "d", "made": "x"},
		Whole: []change{
			key(11, "a"), key(12, "b"), key(13, "d"),
			{Revision: 14, Type: "put", Kind: "Template", Name: "made", Value: "x"},
			machine(15, 1), owner(15, "p", "running"), run(15, 0, 0, "booting", nil),
			{Revision: 16, Type: "put", Kind: "Address", Name: "10.99.128.1", Machine: "mac1"},
			machine(17, 2), run(17, 2, 0, "running", step("running", 1)),
			run(18, 2, 2, "running", step("done", 1)),
			run(19, 2, 3, "succeeded", step("done", 1)), owner(19, "p", "succeeded"),
			managed(19, 1, "cycle", "", 100*time.Second), managed(19, 2, "", "on", 110*time.Second),
		},
		Managed: []string{"managed"},
		Commands: []command{
			{At: int64(101 * time.Second), Machine: "managed", From: "10.99.0.11:1", Request: "POST off"},
			{At: int64(102 * time.Second), Machine: "managed", From: "10.99.0.11:1", Power: bmc.Off},
			{At: int64(103 * time.Second), Machine: "managed", From: "10.99.0.11:1", Power: bmc.On},
			{At: int64(104 * time.Second), Machine: "managed", From: "10.99.0.11:1", Request: "POST on"},
		},
		Leases: []lease{
			{MAC: "mac1", Address: "10.99.128.1"}, {MAC: "mac1", Address: "10.99.128.1"},
			{MAC: "mac2", Address: "10.99.128.2"},
		},
		Waits: []wait{
			{Name: "p", Call: ms, Return: 900 * ms, State: "succeeded"},
			{Name: "late", Deadline: 10 * time.Second, Call: ms, Return: 11 * time.Second, State: "failed"},
		},
		Ledgers: map[string][]journal.Entry{"m": {
			{Epoch: 2, Workflow: "uid"},
			{Epoch: 2, Report: &trivet.Report{Seq: 1, Action: "wipe", Attempt: 1, State: "running"}},
			{Epoch: 2, Report: &trivet.Report{Seq: 2, Action: "wipe", Attempt: 1, State: "done"}},
			{Epoch: 2, Acked: 2},
			{Epoch: 2, Report: &trivet.Report{Seq: 3, Action: "image", Attempt: 1, State: "running"}},
		}},
		Feeds: map[string][]change{},
	}
	h.Feeds["watcher"] = slices.Clone(h.Whole)
	return h
}

// soundOps are its operations.
func soundOps() []op {
	return []op{
		{Client: 0, Do: "write", Key: "key0", Value: "a", Revision: 11, Call: 1 * ms, Return: 2 * ms,
			Outcome: done},
		{Client: 0, Do: "write", Key: "key0", Value: "lost", Call: 3 * ms, Return: 4 * ms, Outcome: unknown},
		{Client: 1, Do: "read", Key: "key0", Was: "a", Call: 3 * ms, Return: 4 * ms, Outcome: done},
		{Client: 1, Do: "swap", Key: "key0", Was: "a", Value: "b", Revision: 12, Call: 5 * ms, Return: 8 * ms,
			Outcome: done},
		{Client: 0, Do: "swap", Key: "key0", Was: "a", Value: "c", Call: 5 * ms, Return: 8 * ms, Outcome: refused},
		{Client: 2, Do: "write", Key: "key0", Value: "d", Call: 9 * ms, Return: 10 * ms, Outcome: unknown},
		{Client: 1, Do: "read", Key: "key0", Was: "d", Call: 11 * ms, Return: 12 * ms, Outcome: done},
		{Client: final, Do: "read", Key: "key0", Was: "d", Call: 20 * ms, Return: 21 * ms, Outcome: done},
		{Client: 2, Do: "create", Key: "made", Value: "x", Revision: 14, Call: 13 * ms, Return: 14 * ms,
			Outcome: done},
	}
}

func TestNothingIsWrongWithASoundHistory(t *testing.T) {
	if err := errors.Join(sound().check()...); err != nil {
		t.Error(err)
	}
}

// A write whose answer was lost is proven by what another one found whose answer was lost as well.
func TestLostAnswersExplainEachOther(t *testing.T) {
	h := &History{Ops: []op{
		{Client: 0, Do: "write", Key: "key", Value: "a", Call: 1 * ms, Return: 2 * ms, Outcome: unknown},
		{Client: 0, Do: "swap", Key: "key", Was: "a", Value: "b", Call: 3 * ms, Return: 4 * ms, Outcome: unknown},
		{Client: 1, Do: "read", Key: "key", Was: "b", Call: 5 * ms, Return: 6 * ms, Outcome: done},
	}}
	var r report
	if h.checkKeys(&r); len(r.violations) > 0 {
		t.Error(r.violations)
	}
}

// whole adds changes of the records, as every watch reported them.
func whole(h *History, c ...change) {
	h.Whole = append(h.Whole, c...)
	h.Feeds["watcher"] = slices.Clone(h.Whole)
}

// workflow is a change of the sound history's workflow.
func workflow(revision, epoch, acked int64, state trivet.StepState, try int) change {
	return change{Revision: revision, Type: "put", Kind: "Workflow", Name: "p-1", State: "failed", Machine: "m",
		Epoch: epoch, Acked: acked, Steps: map[string]stepReport{"wipe": {state, try}}}
}

// again adds entries to the machine's journal.
func again(h *History, e ...journal.Entry) { h.Ledgers["m"] = append(h.Ledgers["m"], e...) }

// violations are changes of a sound history, each with the guarantee that it violates.
var violations = map[string]struct {
	want error
	seed func(h *History)
}{
	"the end has an older value": {ErrWriteLost,
		func(h *History) { h.Ops[7].Was = "b"; h.Ops[6].Was = "b"; h.Ops[5].Outcome = done }},
	"a swap is undone":       {ErrWriteLost, func(h *History) { h.Ops[6].Was, h.Ops[7].Was = "a", "a" }},
	"two swaps of one value": {ErrWriteLost, func(h *History) { h.Ops[4].Outcome = done }},
	"what was made is gone":  {ErrWriteLost, func(h *History) { delete(h.Final, "made") }},
	"a write returns": {ErrWriteTwice, func(h *History) {
		whole(h, change{Revision: 20, Type: "put", Kind: "Template", Name: "key0", Value: "a"})
	}},
	"a refused write is seen":          {ErrRefusedDone, func(h *History) { h.Ops[6].Was = "c" }},
	"a read returns what was replaced": {ErrStaleRead, func(h *History) { h.Ops[6].Was = "a" }},
	"a read goes back": {ErrStaleRead, func(h *History) {
		h.Ops = append(h.Ops, op{Do: "read", Key: "key0", Was: "b", Call: 13 * ms, Return: 14 * ms, Outcome: done})
	}},
	"a watch leaves one out": {ErrWatchSkipped,
		func(h *History) { h.Feeds["watcher"] = slices.Delete(h.Feeds["watcher"], 5, 6) }},
	"a watch ends early":     {ErrWatchSkipped, func(h *History) { h.Feeds["watcher"] = h.Feeds["watcher"][:9] }},
	"a watch starts again":   {ErrWatchSkipped, func(h *History) { h.Feeds["watcher"][3] = change{Type: "reset"} }},
	"no watch knows a write": {ErrWatchSkipped, func(h *History) { h.Ops[3].Revision = 99 }},
	"a watch repeats one": {ErrWatchRepeated,
		func(h *History) { h.Feeds["watcher"] = slices.Insert(h.Feeds["watcher"], 4, h.Whole[3]) }},
	"a watch changes the order": {ErrWatchReordered, func(h *History) {
		f := h.Feeds["watcher"]
		f[1], f[2] = f[2], f[1]
	}},
	"two machines at one address": {ErrAddressTwice, func(h *History) { h.Leases[2].Address = "10.99.128.1" }},
	"an address passes on by record": {ErrAddressTwice, func(h *History) {
		whole(h, change{Revision: 20, Type: "put", Kind: "Address", Name: "10.99.128.1", Machine: "mac2"})
	}},
	"another address for a machine": {ErrAddressChanged, func(h *History) { h.Leases[1].Address = "10.99.128.9" }},
	"two provisions of one machine": {ErrMachineTwice, func(h *History) {
		whole(h, change{Revision: 20, Type: "put", Kind: "Provision", Name: "q", State: "running", Machine: "m"})
	}},
	"two workflows of one machine": {ErrMachineTwice, func(h *History) {
		w := workflow(15, 0, 0, "", 0)
		w.Name, w.State = "q-1", "running"
		end := w
		end.Revision, end.State = 16, "cancelled"
		h.Whole = slices.Insert(h.Whole, 7, w, end)
		whole(h)
	}},
	"a done action runs by record": {ErrActionTwice,
		func(h *History) { whole(h, workflow(20, 2, 3, "running", 2)) }},
	"an acknowledged action begins again": {ErrActionTwice, func(h *History) {
		again(h, journal.Entry{Epoch: 2, Report: &trivet.Report{
			Seq: 4, Action: "wipe", Attempt: 2, State: "running",
		}})
	}},
	"and under a later epoch": {ErrActionTwice, func(h *History) {
		again(h, journal.Entry{Epoch: 3, Workflow: "uid"},
			journal.Entry{Epoch: 3, Report: &trivet.Report{Seq: 1, Action: "wipe", Attempt: 2, State: "running"}})
	}},
	"a report of an old epoch is accepted": {ErrOldEpoch, func(h *History) {
		whole(h, change{Revision: 20, Type: "put", Kind: "Machine", Name: "m", Epoch: 3},
			workflow(21, 2, 4, "done", 1))
	}},
	"an epoch falls": {ErrOldEpoch, func(h *History) {
		whole(h, change{Revision: 20, Type: "put", Kind: "Machine", Name: "m", Epoch: 1})
	}},
	"an old agent continues": {ErrOldEpoch, func(h *History) {
		again(h, journal.Entry{Epoch: 3, Workflow: "uid"},
			journal.Entry{Epoch: 2, Report: &trivet.Report{Seq: 4, Action: "image", Attempt: 1, State: "done"}})
	}},
	"a run fails":            {ErrRunFailed, func(h *History) { h.Waits[0].State = "failed" }},
	"a run never ends":       {ErrRunStuck, func(h *History) { h.Waits[0].Return = 0 }},
	"a workflow is left":     {ErrRunStuck, func(h *History) { h.Whole[11].State = "running"; whole(h) }},
	"a deadline fires early": {ErrDeadlineEarly, func(h *History) { h.Waits[1].Return = 9 * time.Second }},
	"a deadline fires late":  {ErrDeadlineLate, func(h *History) { h.Waits[1].Return = 60 * time.Second }},
	"a deadline never fires": {ErrDeadlineLate, func(h *History) { h.Waits[1].Return = 0 }},
	"a head ends":            {ErrHeadEnded, func(h *History) { h.Deaths = []string{"h0: panic"} }},
	"the test is in trouble": {ErrUndecided, func(h *History) { h.Troubles = []string{"no room"} }},
	"history is compacted":   {ErrUndecided, func(h *History) { h.Whole, h.Cut = h.Whole[:3], true }},

	"a machine that is at work is powered off": {ErrPowerCycled, func(h *History) { h.Commands[1].At += int64(time.Hour) }},
	"two heads use a BMC": {ErrBMCShared, func(h *History) {
		other := command{At: int64(103 * time.Second), Machine: "managed", From: "10.99.0.12:1", Request: "POST off"}
		h.Commands = append(h.Commands, other)
	}},
	"a machine is quarantined": {ErrQuarantined, func(h *History) {
		whole(h, change{Revision: 20, Type: "put", Kind: "Machine", Name: "managed", State: "quarantined", Power: "on"})
	}},
	"an intent remains": {ErrPowerWrong, func(h *History) {
		whole(h, change{Revision: 20, Type: "put", Kind: "Machine", Name: "managed", Intent: "off", Power: "on"})
	}},
	"a record says off": {ErrPowerWrong, func(h *History) {
		whole(h, change{Revision: 20, Type: "put", Kind: "Machine", Name: "managed", Power: "off"})
	}},
	"a machine's record changes often": {ErrWriteRate, func(h *History) {
		for i := range int64(200) {
			whole(h, change{Revision: 20 + i, Type: "put", Kind: "Machine", Name: "managed", Power: "on"})
		}
		h.Faults = []fault{{Kind: "BMCs hang up", From: time.Second, To: 5 * time.Second, First: 19, Last: 300}}
	}},
	"all heads write often": {ErrWriteRate, func(h *History) {
		h.Faults = []fault{{Kind: "BMCs hang up", From: time.Second, To: 5 * time.Second, First: 19, Last: 9000}}
	}},
	"a full store refuses a deletion": {ErrFullStore, func(h *History) { h.Full = []string{"it is full"} }},
	"heads have other records":        {ErrHeadsDiffer, func(h *History) { h.Differ = []string{"Machine m"} }},
}

// Each guarantee's violation is found, and reported as such.
func TestEveryViolationIsFound(t *testing.T) {
	for name, tc := range violations {
		t.Run(name, func(t *testing.T) {
			h := sound()
			tc.seed(h)
			found := h.check()
			if len(found) == 0 {
				t.Fatalf("nothing was found; want %v", tc.want)
			}
			if !slices.ContainsFunc(found, func(err error) bool { return errors.Is(err, tc.want) }) {
				t.Errorf("found %v; want %v", errors.Join(found...), tc.want)
			}
		})
	}
}

// What the checker could not follow is not called wrong: that such a run proves nothing is its only outcome.
func TestACutHistoryProvesNothing(t *testing.T) {
	h := sound()
	h.Whole, h.Cut = h.Whole[:3], true
	if found := h.check(); len(found) != 1 || !errors.Is(found[0], ErrUndecided) {
		t.Errorf("found %v; want only %v", errors.Join(found...), ErrUndecided)
	}
}

// A deadline may fire later by the time in which heads were down.
func TestADeadlineMayWaitForHeads(t *testing.T) {
	h := sound()
	h.Waits[1].Return = 60 * time.Second
	h.Faults = []fault{{From: 5 * time.Second, To: 50 * time.Second}}
	if err := errors.Join(h.check()...); err != nil {
		t.Error(err)
	}
}
