package reconcile_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/reconcile"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/storetest"
)

// probe is a controller whose keys each run one function, once or until it succeeds.
type probe struct {
	declared reconcile.Declaration
	do       map[string]func(ctx context.Context) error
	mu       sync.Mutex
	results  map[string][]error // guarded by mu
	changed  []string           // guarded by mu
	done     chan struct{}      // gets one for each result
}

func (p *probe) Declaration() reconcile.Declaration { return p.declared }

func (p *probe) Keys() (keys []string) {
	for key := range p.do {
		keys = append(keys, key)
	}
	return keys
}

func (p *probe) Affected(e *store.Event) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.changed = append(p.changed, string(e.Kind)+"/"+e.Name)
	return []string{e.Name}
}

func (p *probe) Reconcile(ctx context.Context, key string) (after time.Duration, err error) {
	do := p.do[key]
	if do == nil {
		do = func(context.Context) error { return nil }
	}
	defer func() { // before the runner, which converts a panic to an error
		v := recover()
		if v != nil {
			err, _ = v.(error)
		}
		p.mu.Lock()
		p.results[key] = append(p.results[key], err)
		p.mu.Unlock()
		p.done <- struct{}{}
		if v != nil {
			panic(v)
		}
	}()
	return 0, do(ctx)
}

func (p *probe) result(key string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r := p.results[key]; len(r) > 0 {
		return r[0]
	}
	return errors.New("was not reconciled")
}

func machine(name string) *trivet.Machine { return &trivet.Machine{Meta: trivet.Meta{Name: name}} }

// A controller can neither read nor write a kind that it has not declared: not in a transaction, where the error
// cannot be ignored, and not by the tables that it is given.
func TestUndeclaredKindsAreRefused(t *testing.T) {
	tables := storetest.New(t, state.New)
	p := &probe{results: map[string][]error{}, done: make(chan struct{}, 1000), declared: reconcile.Declaration{
		Name: "probe", Reads: []trivet.Kind{"Head"}, Writes: []trivet.Kind{"Machine"},
		Watches: []trivet.Kind{"Machine"}, Workers: 1,
	}}
	limited := tables.Within(p.declared.Scope())
	update := func(do func(tx *store.Tx) error) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := tables.Store.Update(ctx, do)
			return err
		}
	}
	p.do = map[string]func(context.Context) error{
		"declared write": update(func(tx *store.Tx) error { return tables.Machines.In(tx).Put(machine("m1")) }),
		"declared read": update(func(tx *store.Tx) error {
			_, err := tables.Heads.In(tx).Get("none")
			if errors.Is(err, trivet.ErrNotFound) {
				err = nil
			}
			return err
		}),
		"declared local read": func(context.Context) error { limited.Heads.Len(); return nil },

		"write": update(func(tx *store.Tx) error {
			return tables.Sites.In(tx).Put(&trivet.Site{Meta: trivet.Meta{Name: "site"}})
		}),
		"write of read": update(func(tx *store.Tx) error {
			return tables.Heads.In(tx).Put(&trivet.Head{Meta: trivet.Meta{Name: "h"}})
		}),
		"delete": update(func(tx *store.Tx) error { return tables.Accounts.In(tx).Delete("a") }),
		"ignored read": update(func(tx *store.Tx) error {
			_, _ = tables.Sites.In(tx).Get("site")
			return tables.Machines.In(tx).Put(machine("m2"))
		}),
		"list in a transaction": update(func(tx *store.Tx) error {
			tables.Networks.In(tx).ListBy(state.ByCIDR, "10.0.0.0/8")
			return nil
		}),
		"raw read":   update(func(tx *store.Tx) error { _, _, err := tx.Raw("Site", "site"); return err }),
		"local read": func(context.Context) error { _, err := limited.Sites.GetShared("site"); return err },
		"local list": func(context.Context) error { limited.Accounts.List(); return nil },
		"local index": func(context.Context) error {
			limited.Workflows.ListBy(state.ByMachine, "m1")
			return nil
		},
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := reconcile.Run(ctx, reconcile.Config{Store: tables.Store, Log: slog.New(slog.DiscardHandler)},
			p); err != nil {
			t.Error(err)
		}
	})
	for range p.do {
		<-p.done
	}
	cancel()
	running.Wait()
	for key := range p.do {
		err := p.result(key)
		if declared := strings.HasPrefix(key, "declared"); declared != (err == nil) || !declared &&
			!errors.Is(err, store.ErrScope) {
			t.Errorf("%s: %v", key, err)
		}
	}
	if _, err := tables.Machines.GetShared("m2"); !errors.Is(err, trivet.ErrNotFound) {
		t.Errorf("a transaction outside its scope was committed: %v", err)
	}
}

// A key is reconciled at the start, when a watched record changes, and again after a panic.
func TestRun(t *testing.T) {
	tables := storetest.New(t, state.New)
	var panicked bool
	p := &probe{results: map[string][]error{}, done: make(chan struct{}, 1000), declared: reconcile.Declaration{
		Name: "probe", Reads: []trivet.Kind{"Head"}, Writes: []trivet.Kind{"Machine"},
		Watches: []trivet.Kind{"Machine"}, Workers: 1,
	}}
	p.do = map[string]func(context.Context) error{"first": func(context.Context) error {
		if !panicked {
			panicked = true
			panic(errors.New("out of range"))
		}
		return nil
	}}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		_ = reconcile.Run(ctx, reconcile.Config{Store: tables.Store, Log: slog.New(slog.DiscardHandler)}, p)
	})
	<-p.done
	<-p.done
	_, err := tables.Store.Update(ctx, func(tx *store.Tx) error {
		return errors.Join(tables.Machines.In(tx).Put(machine("m1")),
			tables.Sites.In(tx).Put(&trivet.Site{Meta: trivet.Meta{Name: "site"}}))
	})
	if err != nil {
		t.Fatal(err)
	}
	<-p.done
	cancel()
	running.Wait()
	if p.result("first") == nil || p.result("m1") != nil || strings.Join(p.changed, " ") != "Machine/m1" {
		t.Errorf("results %v after the changes %v", p.results, p.changed)
	}
}

func TestDeclarationsAreValidated(t *testing.T) {
	for _, d := range []reconcile.Declaration{
		{Name: "watches more", Workers: 1, Reads: []trivet.Kind{"Machine"}, Watches: []trivet.Kind{"Machine", "Head"}},
		{Name: "no worker"},
		{Workers: 1},
	} {
		if err := reconcile.Run(t.Context(), reconcile.Config{}, &probe{declared: d}); err == nil {
			t.Errorf("%+v is accepted", d)
		}
	}
}

// A controller that fails after it wrote the status of its record is retried with backoff, while others write it, too,
// and at once when the record's spec changes or what the controller declares as its input.
func TestOwnWritesDoNotEndBackoff(t *testing.T) {
	tables := storetest.New(t, state.New)
	write := func(name string, change func(*trivet.Machine)) error {
		_, err := tables.Store.Update(t.Context(), func(tx *store.Tx) error {
			m, err := tables.Machines.In(tx).Get(name)
			if errors.Is(err, trivet.ErrNotFound) {
				m, err = machine(name), nil
			}
			if err != nil {
				return err
			}
			change(m)
			return tables.Machines.In(tx).Put(m)
		})
		return err
	}
	p := &probe{results: map[string][]error{}, done: make(chan struct{}, 10_000), declared: reconcile.Declaration{
		Name: "probe", Writes: []trivet.Kind{"Machine"}, Watches: []trivet.Kind{"Machine"}, Workers: 1,
		Input: func(r trivet.Record) any { return r.(*trivet.Machine).Status.Power },
	}}
	p.do = map[string]func(context.Context) error{"m1": func(context.Context) error {
		return errors.Join(errors.New("no answer"), write("m1", func(m *trivet.Machine) { m.Status.Events++ }))
	}}
	var running sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	running.Go(func() {
		_ = reconcile.Run(ctx, reconcile.Config{Store: tables.Store, Log: slog.New(slog.DiscardHandler)}, p)
	})
	for range 4 {
		<-p.done
	}
	const writes = 200
	for range writes {
		if err := write("m1", func(m *trivet.Machine) { m.Status.Epoch++ }); err != nil {
			t.Fatal(err)
		}
	}
	if n := p.count("m1"); n > writes/4 {
		t.Errorf("a key that fails ran %d times during %d writes of its status", n, writes)
	}
	for what, change := range map[string]func(*trivet.Machine){
		"spec": func(m *trivet.Machine) { m.Spec.Rack += "x" }, "input": func(m *trivet.Machine) { m.Status.Power += "x" },
	} {
		p.drain()
		for range 20 { // with backoff, these runs alone would take minutes
			if err := write("m1", change); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			<-p.done
		}
	}
	cancel()
	running.Wait()
}

// count returns how often a key was reconciled.
func (p *probe) count(key string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.results[key])
}

// drain forgets the results that were not waited for.
func (p *probe) drain() {
	for len(p.done) > 0 {
		<-p.done
	}
}

// A key that this head holds is processed at once, whatever the rank: the heads that go before can do nothing with it.
func TestHeldKeysAreProcessedAtOnce(t *testing.T) {
	tables := storetest.New(t, state.New)
	first := make(chan string, 2)
	note := func(name string) func(context.Context) error {
		return func(context.Context) error {
			first <- name
			return nil
		}
	}
	c := holding{probe: &probe{
		declared: reconcile.Declaration{Name: "test", Reads: []trivet.Kind{"Machine"},
			Watches: []trivet.Kind{"Machine"}, Workers: 1, Ranked: true},
		do:      map[string]func(context.Context) error{"held": note("held"), "free": note("free")},
		results: map[string][]error{}, done: make(chan struct{}, 2),
	}, held: "held"}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		_ = reconcile.Run(ctx, reconcile.Config{Store: tables.Store, Log: slog.New(slog.DiscardHandler),
			Rank: func(key string) int { return map[string]int{"held": 2, "free": 1}[key] }}, c)
	})
	if key := <-first; key != "held" {
		t.Errorf("%s was processed first", key)
	}
	cancel()
	running.Wait()
}

// holding is a probe that holds a key.
type holding struct {
	*probe
	held string
}

func (h holding) Holds(key string) bool { return key == h.held }
