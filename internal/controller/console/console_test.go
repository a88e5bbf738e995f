package console

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/bmc"
	"github.com/trivet-project/trivet/internal/fleet"
	"github.com/trivet-project/trivet/internal/reconcile/reconciletest"
	"github.com/trivet-project/trivet/internal/replica"
	"github.com/trivet-project/trivet/internal/runlog"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/storetest"
)

// fakeConsoles is a console that has written a text, in pieces; then each read waits for its end.
type fakeConsoles struct {
	refused error
	text    []byte
	piece   int
	all     chan struct{} // closed once all was read
	once    sync.Once
}

func (c *fakeConsoles) Open(context.Context, string, trivet.ConsoleRequest) (trivet.ConsoleSession, error) {
	if c.refused != nil {
		c.once.Do(func() { close(c.all) })
	}
	return trivet.ConsoleSession{Session: "s.head0"}, c.refused
}

func (c *fakeConsoles) Read(ctx context.Context, _, _ string, from int64) (trivet.ConsoleText, error) {
	if from >= int64(len(c.text)) {
		c.once.Do(func() { close(c.all) })
		<-ctx.Done()
		return trivet.ConsoleText{Next: from}, nil // as a read that was waiting does
	}
	next := min(from+int64(c.piece), int64(len(c.text)))
	return trivet.ConsoleText{Text: c.text[from:next], Next: next}, nil
}

// setup returns a controller, and puts a machine that asks for its console with a run.
type setup struct {
	*testing.T
	fleet    *fleet.Fleet
	logs     *replica.Logs
	consoles *fakeConsoles
}

func newSetup(t *testing.T, consoles *fakeConsoles) *setup {
	t.Helper()
	consoles.all = make(chan struct{})
	logs, err := runlog.Open(filepath.Join(t.TempDir(), "logs"), 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { logs.Close() })
	f := fleet.New(storetest.New(t, state.New), "head0")
	s := &setup{t, f, &replica.Logs{Self: "head0", Store: logs, Tables: f.Tables}, consoles}
	s.update(func(tx *store.Tx) error {
		return f.Sites.In(tx).Create(&trivet.Site{Meta: trivet.Meta{Name: trivet.SiteName},
			Status: trivet.SiteStatus{ClusterVersion: trivet.CurrentRelease}})
	})
	return s
}

func (s *setup) controller(f *fleet.Fleet) *Controller {
	c := New(Config{Fleet: f, Consoles: s.consoles, Logs: s.logs, Tables: f.Tables, Rank: func(string) int { return 0 }})
	s.Cleanup(c.Close)
	return c
}

// put writes a machine and its run.
func (s *setup) put(name string, console bool) {
	s.Helper()
	s.update(func(tx *store.Tx) error {
		m := &trivet.Machine{Meta: trivet.Meta{Name: name}, Spec: trivet.MachineSpec{
			BMC: &trivet.BMC{Protocol: "ipmi", Address: "127.0.0.1", Secret: "bmc", Console: console}}}
		if err := s.fleet.Machines.In(tx).Put(m); err != nil {
			return err
		}
		return s.fleet.Workflows.In(tx).Put(&trivet.Workflow{Meta: trivet.Meta{Project: "default", Name: name},
			Spec: trivet.WorkflowSpec{Machine: name, MachineUID: m.UID}, Status: trivet.WorkflowStatus{State: "running"}})
	})
}

// end ends a run, with a failure or without.
func (s *setup) end(name string, failure *trivet.Failure) {
	s.Helper()
	s.update(func(tx *store.Tx) error {
		w, err := s.fleet.Workflows.In(tx).Get("default/" + name)
		if err != nil {
			return err
		}
		w.Status.State, w.Status.Failure = trivet.WorkflowSucceeded, failure
		if failure != nil {
			w.Status.State = trivet.WorkflowFailed
		}
		return s.fleet.Workflows.In(tx).Put(w)
	})
}

func (s *setup) update(do func(*store.Tx) error) {
	s.Helper()
	if _, err := s.fleet.Store.Update(s.Context(), do); err != nil {
		s.Fatal(err)
	}
}

// log returns the log of a run's console.
func (s *setup) log(name string, attempt int) string {
	s.Helper()
	buf := make([]byte, 4<<20)
	key := trivet.LogKey{Action: trivet.LogConsole, Epoch: 1, Attempt: attempt}
	n, err := s.logs.Store.Read("default/"+name, key, 0, buf)
	if err != nil && !errors.Is(err, trivet.ErrNotFound) {
		s.Fatal(err)
	}
	return string(buf[:n])
}

func (s *setup) reconcile(c *Controller, name string) {
	s.Helper()
	if _, err := c.Reconcile(s.Context(), "default/"+name); err != nil {
		s.Fatal(err)
	}
}

func TestDeclaration(t *testing.T) {
	s := newSetup(t, &fakeConsoles{text: []byte("no bootable device\r\n"), piece: 100})
	reconciletest.Exact(t, Declaration, func(ctx context.Context, scope *store.Scope, n int) error {
		name := fmt.Sprint("m", n)
		s.put(name, true)
		c := s.controller(s.fleet.Within(scope))
		_, err1 := c.Reconcile(ctx, "default/"+name)
		<-s.consoles.all
		s.end(name, &trivet.Failure{Type: trivet.FaultMachine, Cause: "no DHCP"})
		_, err2 := c.Reconcile(ctx, "default/"+name)
		w, err := s.fleet.Workflows.Get("default/" + name)
		if err := errors.Join(err, err1, err2); err != nil || w.Status.Failure.Console != "no bootable device" {
			return fmt.Errorf("the run is %+v: %w", w.Status.Failure, err)
		}
		return nil
	})
}

// What a machine writes is in the log of its run; of a run that succeeded nothing else is kept. A machine that does not
// ask for it is left alone.
func TestCollects(t *testing.T) {
	s := newSetup(t, &fakeConsoles{text: []byte("one\x00 two"), piece: 3})
	c := s.controller(s.fleet)
	s.put("off", false)
	s.put("m", true)
	s.reconcile(c, "off")
	s.reconcile(c, "m")
	<-s.consoles.all
	s.reconcile(c, "m")
	s.end("m", nil)
	if keys := c.Keys(); !slices.Contains(keys, "default/m") { // where the change is missed
		t.Errorf("of runs that go on and one that is still collected, the keys are %v", keys)
	}
	s.reconcile(c, "m")
	if keys := c.Keys(); !slices.Equal(keys, []string{"default/off"}) {
		t.Errorf("the keys are %v", keys)
	}
	if got := s.log("m", 1); got != "one two" {
		t.Errorf("the log is %q", got)
	}
	if s.log("off", 1) != "" || s.log("m", 2) != "" || len(c.followers) > 0 {
		t.Errorf("more was collected; %d go on", len(c.followers))
	}
}

// A console that is not available is noted once in the log, and is no error of the run.
func TestNoConsole(t *testing.T) {
	s := newSetup(t, &fakeConsoles{refused: bmc.ErrNoConsole})
	c := s.controller(s.fleet)
	s.put("m", true)
	s.reconcile(c, "m")
	<-s.consoles.all
	s.end("m", &trivet.Failure{Cause: "no DHCP"})
	s.reconcile(c, "m")
	if got := s.log("m", 1); strings.Count(got, "[trivet: no console: ") != 1 {
		t.Errorf("the log is %q", got)
	}
	if w, err := s.fleet.Workflows.Get("default/m"); err != nil || w.Status.Failure.Console != "" {
		t.Errorf("%+v, %v", w.Status.Failure, err)
	}
}

// Of a console that never ends the log has the beginning and the end, and another head begins a log of its own.
func TestFlood(t *testing.T) {
	text := bytes.Repeat([]byte("0123456789abcde\n"), 256<<10)
	copy(text, "the beginning")
	s := newSetup(t, &fakeConsoles{text: append(text, "the end\n"...), piece: 64 << 10})
	s.put("m", true)
	a := s.controller(s.fleet)
	s.reconcile(a, "m")
	<-s.consoles.all
	a.Close()
	got := s.log("m", 1)
	if !strings.HasPrefix(got, "the beginning") || !strings.HasSuffix(got, "the end\n") ||
		!strings.Contains(got, "bytes are left out]") || len(got) > maxBegin+maxTail+100 || len(got) < maxBegin {
		t.Errorf("the log has %d bytes", len(got))
	}
	s.consoles = &fakeConsoles{text: []byte("again"), piece: 9, all: make(chan struct{})}
	b := s.controller(s.fleet)
	s.reconcile(b, "m")
	<-s.consoles.all
	b.Close()
	if got := s.log("m", 2); got != "again" {
		t.Errorf("the second log is %q", got)
	}
}

func TestLastLines(t *testing.T) {
	for in, want := range map[string]string{
		"":                                "",
		"one\r\n\r\ntwo":                  "one\ntwo",
		"\x1b[2J\x1b[1;31mred\x1b[0m\n":   "red",
		"\x1b]0;title\x07text\a\b":        "text",
		"\xff\x00a\u202eb":                "? a b",
		strings.Repeat("x\n", 30):         strings.TrimSuffix(strings.Repeat("x\n", maxLines), "\n"),
		strings.Repeat("y", 300) + "\nz ": strings.Repeat("y", maxLineBytes) + "\nz",
	} {
		if got := lastLines([]byte(in)); got != want {
			t.Errorf("%q: %q; want %q", in, got, want)
		}
	}
}

// The last lines are bounded text without control characters, whatever a machine writes.
func FuzzLastLines(f *testing.F) {
	f.Add([]byte("\x1b[2Jno bootable device\r\n"))
	f.Add([]byte("\x1b]\x1b\x1b[\xff\u202e"))
	f.Fuzz(func(t *testing.T, b []byte) {
		got := lastLines(b)
		lines := strings.Split(got, "\n")
		if len(lines) > maxLines || len(got) > maxLines*(maxLineBytes+1) {
			t.Errorf("%d lines, %d bytes", len(lines), len(got))
		}
		for _, r := range strings.ReplaceAll(got, "\n", "") {
			if !unicode.IsPrint(r) {
				t.Errorf("%q in %q", r, got)
			}
		}
	})
}
