package collect

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/runlog"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/storetest"
)

// site is tables in which runs are swept.
type site struct {
	*testing.T
	*state.Tables
	now time.Time
}

// newSite has machine m1, whose last run is p-3, and runs of two provisions of which q is gone.
func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{t, storetest.New(t, state.New), time.Now()}
	s.reach("0.3.1")
	s.write(func(tx *store.Tx) error {
		m := &trivet.Machine{Meta: trivet.Meta{Name: "m1"}, Status: trivet.MachineStatus{
			State: trivet.MachineAvailable, Workflow: "p-3"}}
		p := &trivet.Provision{Meta: trivet.Meta{Project: "default", Name: "p"},
			Spec: trivet.ProvisionSpec{Template: "t", Machine: "m1"}}
		return errors.Join(s.Machines.In(tx).Create(m), s.Provisions.In(tx).Create(p))
	})
	for _, run := range []string{"p-1", "p-2", "p-3"} {
		s.run(run, "m1", "p", trivet.WorkflowFailed, time.Hour)
	}
	return s
}

func (s *site) write(do func(tx *store.Tx) error) {
	s.Helper()
	if _, err := s.Store.Update(s.Context(), do); err != nil {
		s.Fatal(err)
	}
}

func (s *site) reach(release trivet.Release) {
	s.Helper()
	s.write(func(tx *store.Tx) error {
		return s.Sites.In(tx).Put(&trivet.Site{Meta: trivet.Meta{Name: trivet.SiteName},
			Status: trivet.SiteStatus{ClusterVersion: release}})
	})
}

// run writes a run whose state was reached some time ago.
func (s *site) run(name, machine, provision string, is trivet.WorkflowState, ago time.Duration) {
	s.Helper()
	uid := ""
	if m, err := s.Machines.GetShared(machine); err == nil {
		uid = m.UID
	}
	s.write(func(tx *store.Tx) error {
		return s.Workflows.In(tx).Create(&trivet.Workflow{Meta: trivet.Meta{Project: "default", Name: name},
			Spec:   trivet.WorkflowSpec{Machine: machine, MachineUID: uid, Provision: provision},
			Status: trivet.WorkflowStatus{State: is, Ended: s.now.Add(-ago)}})
	})
}

// sweep is a pass through the runs, or what another key has.
func (s *site) sweep(c *Controller, key string) {
	s.Helper()
	keys := []string{key}
	if key == keyRuns {
		keys = append(keys, keyFormer)
	}
	for _, key := range keys {
		if err := whole(s.Context(), c, key, s.now); err != nil {
			s.Fatal(err)
		}
	}
}

// whole makes all slices of a pass.
func whole(ctx context.Context, c *Controller, key string, now time.Time) error {
	for {
		c.begin()
		if err := c.sweep(ctx, key, now); err != nil || !c.more {
			return err
		}
	}
}

// expect compares the names of the runs in the copy, and of the former ones.
func (s *site) expect(what, hot, former string) {
	s.Helper()
	list, next, err := s.Workflows.FormerAfter(s.Context(), "", 1000)
	if err != nil || next != "" {
		s.Fatal(next, err)
	}
	names := []string{}
	for _, w := range list {
		names = append(names, w.Name)
	}
	var copied []string
	for w := range s.Workflows.AllShared() {
		copied = append(copied, w.Name)
	}
	if fmt.Sprint(copied) != hot || fmt.Sprint(names) != former {
		s.Errorf("%s: in the copy are %v, want %s; former are %v, want %s", what, copied, hot, names, former)
	}
}

// Ended runs become former ones that are not the last of their machine, when all heads know of that, a while after
// their end. So do those of machines that are gone.
func TestRunsBecomeFormer(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	c := New(Config{Tables: s.Tables})
	s.run("p-4", "m1", "p", trivet.WorkflowFailed, keepHot-time.Second)
	s.run("p-5", "m1", "p", trivet.WorkflowRunning, time.Hour)
	s.run("p-6", "gone", "p", trivet.WorkflowFailed, time.Hour)
	s.write(func(tx *store.Tx) error { // of an earlier machine of that name
		return s.Workflows.In(tx).Create(&trivet.Workflow{Meta: trivet.Meta{Project: "default", Name: "p-7"},
			Spec:   trivet.WorkflowSpec{Machine: "m1", MachineUID: "other", Provision: "p"},
			Status: trivet.WorkflowStatus{State: trivet.WorkflowSucceeded, Ended: s.now.Add(-time.Hour)}})
	})
	s.reach("0.3")
	s.sweep(c, keyRuns)
	s.expect("before the release", "[p-1 p-2 p-3 p-4 p-5 p-6 p-7]", "[]")
	s.reach("0.3.1")
	s.sweep(c, keyRuns)
	s.expect("with it", "[p-3 p-4 p-5]", "[p-1 p-2 p-6 p-7]")
	s.sweep(c, keyRuns)
	s.now = s.now.Add(time.Second)
	s.sweep(c, keyRuns)
	s.expect("later", "[p-3 p-5]", "[p-1 p-2 p-4 p-6 p-7]")
}

// A machine keeps so many former runs, and of those that become former at once the newest ones, whatever their names.
func TestFormerRunsAreBounded(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	c := New(Config{Tables: s.Tables})
	for i := range trivet.FormerRuns {
		s.run(fmt.Sprintf("p-%d", 199-i), "m1", "p", trivet.WorkflowFailed, time.Hour)
	}
	s.sweep(c, keyRuns)
	list, _, err := s.Workflows.FormerAfter(t.Context(), "", 1000)
	if err != nil || len(list) != trivet.FormerRuns || s.Workflows.Len() != 1 {
		t.Fatalf("%d are former, %d in the copy, %v", len(list), s.Workflows.Len(), err)
	}
	for name, want := range map[string]bool{"p-1": false, "p-2": false, "p-199": true, "p-184": true} {
		if has, err := s.Workflows.HasFormer(t.Context(), "default/"+name); has != want || err != nil {
			t.Errorf("%s is kept: %t, %v", name, has, err)
		}
	}
}

// Two heads that sweep at once make each run a former one once.
func TestTwoHeadsMakeRunsFormer(t *testing.T) {
	t.Parallel()
	m := storetest.Member(t)
	near := &site{t, storetest.On(t, m, store.Options{Head: "head0"}, state.New), time.Now()}
	far := storetest.On(t, m, store.Options{Head: "head1"}, state.New)
	near.reach("0.3.1")
	for i := range 20 {
		near.run(fmt.Sprintf("p-%02d", i), fmt.Sprint("m", i%4), "p", trivet.WorkflowFailed, time.Hour)
	}
	if err := far.Store.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	for _, tables := range []*state.Tables{near.Tables, far} {
		go func() { done <- New(Config{Tables: tables}).sweep(context.Background(), keyRuns, near.now) }()
	}
	if err := errors.Join(<-done, <-done, near.Store.Sync(t.Context())); err != nil {
		t.Fatal(err)
	}
	near.expect("after both", "[]", "[p-00 p-01 p-02 p-03 p-04 p-05 p-06 p-07 p-08 p-09 p-10 p-11 p-12 p-13 p-14 p-15 "+
		"p-16 p-17 p-18 p-19]")
	list, _, _, err := near.Store.ListAll(t.Context(), store.Query{Kind: "Workflow", Limit: 100, Bytes: 1 << 20,
		Field: func(f string) string { return map[string]string{"spec.machine": "m1"}[f] }})
	if err != nil || len(list) != 5 {
		t.Errorf("machine m1 has %d former runs, want 5: %v", len(list), err)
	}
}

// Former runs are deleted by the rules of others: when their provision is gone, also where there is another one of its
// name, and they ended long ago.
func TestFormerRunsOfProvisionsThatAreGone(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	c := New(Config{Tables: s.Tables})
	s.run("q-1", "m1", "q", trivet.WorkflowFailed, time.Hour)
	s.sweep(c, keyRuns)
	s.expect("at first", "[p-3]", "[p-1 p-2 q-1]")
	s.now = s.now.Add(keepRun - time.Hour - time.Second)
	s.sweep(c, keyRuns)
	s.expect("before that time", "[p-3]", "[p-1 p-2 q-1]")
	s.now = s.now.Add(time.Second)
	s.sweep(c, keyRuns)
	s.expect("after it", "[p-3]", "[p-1 p-2]")
	s.write(func(tx *store.Tx) error { return s.Provisions.In(tx).Delete("default/p") })
	s.write(func(tx *store.Tx) error {
		return s.Provisions.In(tx).Create(&trivet.Provision{Meta: trivet.Meta{Project: "default", Name: "p"},
			Spec: trivet.ProvisionSpec{Template: "t", Machine: "m1"}})
	})
	s.sweep(c, keyRuns)
	s.expect("of another provision", "[p-3]", "[]")
	s.write(func(tx *store.Tx) error { return s.Machines.In(tx).Delete("m1") })
	s.sweep(c, keyRuns)
	s.expect("without the machine", "[]", "[]")
}

// The logs of former runs stay, and those of runs that are gone are found by several sweeps.
func TestLogsOfFormerRuns(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	dir := t.TempDir()
	logs, err := runlog.Open(dir, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { logs.Close() })
	c := New(Config{Tables: s.Tables, Logs: logs})
	s.sweep(c, keyRuns)
	old := s.now.Add(-2 * keepLog)
	for _, name := range []string{"p-1", "p-2", "p-3", "q-1", "q-2"} {
		key := trivet.LogKey{Action: "a", Epoch: 1, Attempt: 1}
		if err := logs.Append("default/"+name, key, 0, []byte("text")); err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{"default/" + name + "/a.1.1.log", "default/" + name} {
			if err := os.Chtimes(filepath.Join(dir, path), old, old); err != nil {
				t.Fatal(err)
			}
		}
	}
	s.sweep(c, keyLogs)
	got, err := logs.Workflows()
	if slices.Sort(got); err != nil || fmt.Sprint(got) != "[default/p-1 default/p-2 default/p-3]" {
		t.Errorf("there are logs of %v, %v", got, err)
	}
}

// Each sweep of logs goes on after the last one, and then begins again.
func TestNextLogs(t *testing.T) {
	t.Parallel()
	c := New(Config{})
	var names []string
	for i := range 2*maxLogs + 1 {
		names = append(names, fmt.Sprintf("default/r-%06d", i))
	}
	for i, want := range []struct {
		n     int
		first string
	}{{maxLogs, names[0]}, {maxLogs, names[maxLogs]}, {1, names[2*maxLogs]}, {maxLogs, names[0]}} {
		if got := c.nextLogs(slices.Clone(names)); len(got) != want.n || got[0] != want.first {
			t.Errorf("sweep %d: %d from %s, want %d from %s", i, len(got), got[0], want.n, want.first)
		}
	}
	if got := c.nextLogs(names[:1]); len(got) != 1 {
		t.Errorf("of fewer: %v", got)
	}
}
