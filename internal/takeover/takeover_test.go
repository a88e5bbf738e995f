package takeover

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/bmc"
)

// fixture is the surroundings of head1, which takes over from head0. All is done by one goroutine.
type fixture struct {
	heads             []*trivet.Head
	quorum, reachable bool
	cut               bool            // head1 gets nothing of the store, though pings arrive
	current           time.Time       // kept by tick
	heard             time.Time       // from head0, likewise
	responds          map[string]bool // of each head: whether it has a quorum; absent: it does not respond
	power             bmc.State
	stuck             bool        // its power cannot be changed
	broken            error       // of the BMC
	notReady          error       // of this head
	sent              []bmc.State // changes of power
	causes            []string    // of takeovers
	check             func(string)
	later             map[time.Time]func()
}

func newFixture() *fixture {
	own := member("head1", trivet.RoleStandby)
	own.Spec.Takeover = &trivet.Takeover{After: trivet.Duration(time.Minute),
		Reach: []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")}}
	other := member("head0", trivet.RoleVoter)
	other.Spec.BMC = &trivet.BMC{Protocol: "ipmi", Address: "10.0.9.5", Secret: "s"}
	return &fixture{heads: []*trivet.Head{other, own}, quorum: true, reachable: true, power: bmc.On,
		responds: map[string]bool{"head0": true}, check: func(string) {}, later: map[time.Time]func(){}}
}

func member(name, role string) *trivet.Head {
	return &trivet.Head{Meta: trivet.Meta{Name: name}, Spec: trivet.HeadSpec{Role: role},
		Status: trivet.HeadStatus{State: trivet.HeadMember}}
}

func (f *fixture) keeper() *Keeper {
	return New(Config{Head: "head1", Heads: func() []*trivet.Head { return f.heads },
		Quorum:    func() bool { f.tick(); return f.quorum },
		Current:   func() time.Time { return f.current },
		LastHeard: func(string) time.Time { return f.heard },
		Ping: func(_ context.Context, h *trivet.Head) (responds, quorum bool, err error) {
			f.tick()
			quorum, responds = f.responds[h.Name]
			if !responds {
				err = trivet.ErrUnavailable
			}
			return responds, quorum, err
		},
		BMC: func(context.Context, *trivet.Head) (bmc.Client, error) { f.tick(); return f, f.broken },
		Reach: func(_ context.Context, host netip.Addr) error {
			if host.String() == "10.0.0.2" && f.reachable {
				return nil
			}
			return errors.New("no response")
		},
		Ready: func() error { return f.notReady },
		Begin: func(cause string) error { f.check("begin"); f.causes = append(f.causes, cause); return nil },
		Log:   slog.New(slog.NewTextHandler(io.Discard, nil))})
}

func (f *fixture) Power(context.Context) (bmc.State, error) { f.tick(); return f.power, f.broken }

func (f *fixture) SetPower(_ context.Context, want bmc.State) error {
	f.tick()
	f.check("power off")
	f.sent = append(f.sent, want)
	if !f.stuck {
		f.power = want
	}
	return f.broken
}

func (f *fixture) SetNextBoot(context.Context, bmc.Device) error { return nil }
func (f *fixture) Close()                                        {}

// lost is the loss of the other head.
func (f *fixture) lost() {
	f.quorum = false
	delete(f.responds, "head0")
}

// after lets something happen later.
func (f *fixture) after(d time.Duration, do func()) { f.later[time.Now().Add(d)] = do }

// tick does what is due, and notes what pings and reads note.
func (f *fixture) tick() {
	for at, do := range f.later {
		if !time.Now().Before(at) {
			delete(f.later, at)
			do()
		}
	}
	if f.quorum && !f.cut {
		f.current = time.Now()
	}
	if _, ok := f.responds["head0"]; ok {
		f.heard = time.Now()
	}
}

// run lets a Keeper run for a while, or until it takes over.
func (f *fixture) run(t *testing.T, k *Keeper, d time.Duration) {
	t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end) && len(f.causes) == 0; time.Sleep(stepInterval) {
		f.tick()
		k.step(t.Context())
	}
}

func TestTakesOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture()
		k := f.keeper()
		f.run(t, k, 3*time.Minute)
		if facts := k.Facts(); facts == nil || facts.Problem != "" || facts.From != "head0" || len(f.sent) > 0 {
			t.Errorf("while all is well: %+v, %v", facts, f.sent)
		}
		f.lost()
		f.run(t, k, 58*time.Second)
		if len(f.sent) > 0 {
			t.Error("the other head was powered off before the time")
		}
		f.run(t, k, 10*time.Minute)
		if len(f.causes) != 1 || len(f.sent) != 1 || f.power != bmc.Off || !strings.Contains(f.causes[0], "10.0.9.5") {
			t.Errorf("%v, %v, %v", f.causes, f.sent, f.power)
		}
	})
}

// Whatever is missing prevents a takeover, is named, and does not change the power where it is known before.
func TestDoesNotTakeOver(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*fixture)
		text   string
		sent   bool
	}{
		"it is cut off":          {func(f *fixture) { f.reachable = false }, "cut off itself", false},
		"the other one responds": {func(f *fixture) { f.responds["head0"] = false }, "head0 responds", false},
		"a BMC that fails":       {func(f *fixture) { f.broken = errors.New("timeout") }, "timeout", false},
		"it stays on":            {func(f *fixture) { f.stuck = true }, "reports on", true},
		"no space":               {func(f *fixture) { f.notReady = errors.New("no space") }, "no space", false},
		"a third full head": {func(f *fixture) { f.heads = append(f.heads, member("head2", "voter")) }, "3 full",
			false},
		"no BMC": {func(f *fixture) { f.heads[0].Spec.BMC = nil }, "trivet head set head0 --bmc", false},
		"the other one is gone": {func(f *fixture) { f.heads[0].Status.State = trivet.HeadRemoved }, "no other full",
			false},
		"it is being removed": {func(f *fixture) { f.heads[1].Spec.Remove = true }, "being removed", false},
		"a quorum of the witness": {func(f *fixture) { witness(f); f.responds["head2"] = true },
			"connected to a leader", false},
		"a witness that is silent": {func(f *fixture) { witness(f) }, "witness head2 does not respond", false},
		"it returns meanwhile": {func(f *fixture) { f.after(65*time.Second, func() { f.responds["head0"] = false }) },
			"head0 responds", false},
		"a witness that starts again": {func(f *fixture) {
			witness(f)
			f.responds["head2"] = true
			f.after(62*time.Second, func() { f.responds["head2"] = false })
			f.after(66*time.Second, func() { f.responds["head2"] = true })
		}, "connected to a leader", false},
		"it is switched on again": {func(f *fixture) {
			f.check = func(string) { f.after(8*time.Second, func() { f.power = bmc.On }) }
		}, "reports on", true},
		"it was behind": {func(f *fixture) {
			f.quorum, f.cut, f.responds["head0"] = true, true, true
			f.after(40*time.Second, f.lost)
		}, "when head0 was last heard", false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture()
				k := f.keeper()
				f.run(t, k, time.Minute)
				f.lost()
				c.change(f)
				f.run(t, k, 8*time.Minute)
				if facts := k.Facts(); facts == nil || !strings.Contains(facts.Problem, c.text) {
					t.Errorf("%+v, want %q", facts, c.text)
				}
				if len(f.causes) > 0 || (len(f.sent) > 0) != c.sent {
					t.Errorf("%v, sent %v", f.causes, f.sent)
				}
			})
		})
	}
}

// A head that is on again after it was powered off was switched on by somebody: it is not powered off again.
func TestPowersOffOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture()
		k := f.keeper()
		f.run(t, k, time.Minute)
		f.lost()
		f.check = func(string) { f.after(8*time.Second, func() { f.power = bmc.On }) }
		f.run(t, k, 8*time.Minute)
		if len(f.sent) != 1 || f.power != bmc.On {
			t.Errorf("sent %v, it is %s", f.sent, f.power)
		}
	})
}

// A BMC that gives no answer gets the command three times.
func TestUnknownOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture()
		k := f.keeper()
		f.run(t, k, time.Minute)
		f.lost()
		f.stuck = true
		f.check = func(string) {
			f.broken = fmt.Errorf("%w: no response", trivet.ErrUnknown)
			f.after(time.Second, func() { f.broken = nil })
		}
		f.run(t, k, 8*time.Minute)
		if len(f.sent) != maxFailed || len(f.causes) > 0 {
			t.Errorf("sent %v; %v", f.sent, f.causes)
		}
	})
}

// A head that has never been connected, or not for long, is behind, and what it knows of the others is old.
func TestStaleHead(t *testing.T) {
	for name, prepare := range map[string]func(*testing.T, *fixture, *Keeper){
		"it has started without a quorum": func(_ *testing.T, f *fixture, _ *Keeper) { f.lost() },
		"it was lost long ago, and could not be powered off": func(t *testing.T, f *fixture, k *Keeper) {
			f.run(t, k, time.Minute)
			f.lost()
			f.broken = errors.New("timeout")
			f.run(t, k, 12*time.Minute)
			f.broken = nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture()
				k := f.keeper()
				prepare(t, f, k)
				f.run(t, k, time.Hour)
				if facts := k.Facts(); facts == nil || !strings.Contains(facts.Problem, "may be behind") || len(f.sent) > 0 {
					t.Errorf("%+v, sent %v", facts, f.sent)
				}
			})
		})
	}
}

// The time begins when the other head is silent, not when this one is without a quorum.
func TestRestartAfterLongSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture()
		k := f.keeper()
		f.run(t, k, time.Minute)
		f.quorum, f.responds["head0"] = false, false
		f.run(t, k, 5*time.Minute)
		delete(f.responds, "head0")
		f.run(t, k, 50*time.Second)
		if len(f.sent) > 0 {
			t.Errorf("sent %v while it starts again", f.sent)
		}
	})
}

func witness(f *fixture) { f.heads = append(f.heads, member("head2", trivet.RoleWitness)) }

func TestNotRequested(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture()
		k := f.keeper()
		f.run(t, k, time.Minute)
		f.lost()
		f.heads[1].Spec.Takeover = nil
		f.run(t, k, 10*time.Minute)
		if k.Facts() != nil || len(f.sent) > 0 {
			t.Errorf("%+v, %v", k.Facts(), f.sent)
		}
	})
}

// While all is well, what would prevent a takeover is found.
func TestChecks(t *testing.T) {
	for text, change := range map[string]func(*fixture){
		"cut off itself":             func(f *fixture) { f.reachable = false },
		"timeout":                    func(f *fixture) { f.broken = errors.New("timeout") },
		"not that of its host":       func(f *fixture) { f.power = bmc.Off },
		"no space":                   func(f *fixture) { f.notReady = errors.New("no space") },
		"trivet head set head0 --bm": func(f *fixture) { f.heads[0].Spec.BMC = nil },
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFixture()
			change(f)
			k := f.keeper()
			f.run(t, k, 3*time.Minute)
			if facts := k.Facts(); facts == nil || !strings.Contains(facts.Problem, text) || len(f.sent) > 0 {
				t.Errorf("%+v, want %q; sent %v", facts, text, f.sent)
			}
		})
	}
}

// A process that was paused does not know when the other head was lost. Once it was connected again, it does.
func TestPausedProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture()
		k := f.keeper()
		f.run(t, k, time.Minute)
		f.lost()
		time.Sleep(10 * time.Second) // nothing runs
		f.run(t, k, 5*time.Minute)
		if facts := k.Facts(); !strings.Contains(facts.Problem, "was paused") || len(f.sent) > 0 {
			t.Errorf("after a pause: %+v, sent %v", facts, f.sent)
		}
		f.quorum, f.responds["head0"] = true, true
		f.run(t, k, time.Minute)
		f.lost()
		f.run(t, k, 5*time.Minute)
		if len(f.causes) != 1 {
			t.Errorf("connected again, and lost: %+v", k.Facts())
		}
	})
}

// A step of the wall clock is taken for a pause: that of a host may stop the other clock.
func TestSilence(t *testing.T) {
	var s silence
	now := time.Now()
	for i, c := range []struct {
		at      time.Time
		resumed bool
	}{
		{now, true}, {now.Add(time.Second), false}, {now.Add(5 * time.Second), false}, {now.Add(11 * time.Second), true},
	} {
		s.observe(c.at)
		if got := s.resumed.Equal(c.at); got != c.resumed {
			t.Errorf("observation %d: resumed %t", i, got)
		}
	}
	s.observe(s.last.Round(0).Add(-time.Hour)) // without a monotonic reading both are compared by the wall clock
	if !s.resumed.Equal(s.last) {
		t.Error("a step of the wall clock is not noticed")
	}
}

// Whatever happens and whenever, the other head is powered off, and taken over from, only while it is silent and no
// witness knows a leader, by a head that is connected, and was current when it was lost.
func TestProperty(t *testing.T) {
	begun := 0
	rapid.Check(t, func(rt *rapid.T) {
		changes := rapid.SliceOfN(rapid.IntRange(0, 12), 1, 40).Draw(rt, "changes")
		pauses := rapid.SliceOfN(rapid.IntRange(1, 120), len(changes), len(changes)).Draw(rt, "pauses")
		synctest.Test(t, func(t *testing.T) {
			f, commands := newFixture(), 0
			witness(f)
			f.responds["head2"] = true
			f.check = func(what string) {
				_, responds := f.responds["head0"]
				leads, answers := f.responds["head2"]
				age := time.Since(f.current)
				if responds || f.quorum || !f.reachable || leads || !answers || f.current.IsZero() ||
					age < time.Minute || age > 14*time.Minute || time.Since(f.heard) < time.Minute ||
					f.heard.Sub(f.current) > maxBehind || what == "begin" && f.power != bmc.Off {
					t.Errorf("%s with %+v", what, f)
				}
				if what == "power off" {
					if commands++; commands > 1 && f.broken == nil {
						t.Errorf("it is powered off again: %+v", f)
					}
				}
			}
			k := f.keeper()
			for i, change := range changes {
				f.happens(change)
				if f.quorum {
					commands = 0
				}
				f.run(t, k, time.Duration(pauses[i])*time.Second)
			}
			begun += len(f.causes)
		})
	})
	if begun == 0 {
		t.Error("no run has ended in a takeover")
	}
}

// happens changes one thing.
func (f *fixture) happens(what int) {
	switch what {
	case 0, 1, 2, 3:
		f.lost()
		f.responds["head2"] = false
	case 4:
		f.quorum = !f.quorum
	case 5:
		f.reachable = !f.reachable
	case 6:
		f.power = bmc.On
	case 7:
		f.stuck = !f.stuck
	case 8:
		f.broken = errors.New("broken")
	case 9:
		f.broken = nil
	case 10:
		f.responds["head0"] = f.quorum
	case 11:
		f.responds["head2"] = f.quorum
	case 12:
		f.cut = !f.cut
	}
}

func TestOrder(t *testing.T) {
	dir := t.TempDir()
	if o, err := Read(dir); o != nil || err != nil {
		t.Errorf("no order: %+v, %v", o, err)
	}
	if err := Write(dir, "1-a", "it is off"); err != nil {
		t.Fatal(err)
	}
	o, err := Read(dir)
	if err != nil || !o.Valid(dir) || o.Cause != "it is off" || o.Incarnation != "1-a" {
		t.Fatalf("%+v, %v", o, err)
	}
	for what, change := range map[string]func(*Order){
		"older":                func(o *Order) { o.Uptime -= maxAge + time.Second },
		"of another boot":      func(o *Order) { o.Boot = "other" },
		"later than this now":  func(o *Order) { o.Uptime += time.Hour },
		"of another directory": func(o *Order) { o.Dir += "-copy" },
	} {
		other := *o
		if change(&other); other.Valid(dir) {
			t.Errorf("an order that is %s is valid", what)
		}
	}
	late := *o
	if late.Uptime -= MaxAge + time.Second; o.Check(dir) != nil || late.Check(dir) == nil {
		t.Errorf("the end of a recovery: %v, %v", o.Check(dir), late.Check(dir))
	}
	if err := errors.Join(Remove(dir), Remove(dir)); err != nil {
		t.Error(err)
	}
	if o, err := Read(dir); o != nil || err != nil {
		t.Errorf("removed: %+v, %v", o, err)
	}
}

func TestDamagedOrder(t *testing.T) {
	dir := t.TempDir()
	for _, text := range []string{"", "{", "null", `{"boot":1}`} {
		if err := writeFile(orderPath(dir), text); err != nil {
			t.Fatal(err)
		}
		if o, err := Read(dir); err != nil || o == nil || o.Valid(dir) {
			t.Errorf("%q: %+v, %v", text, o, err)
		}
	}
}
