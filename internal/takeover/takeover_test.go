package takeover

import (
	"context"
	"errors"
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

// fixture is the surroundings of head1, which takes over from head0.
type fixture struct {
	heads             []*trivet.Head
	quorum, reachable bool
	responds          map[string]bool // of each head: whether it has a quorum; absent: it does not respond
	power             bmc.State
	stuck             bool  // its power cannot be changed
	broken            error // of the BMC
	sent              []bmc.State
	causes            []string
}

func newFixture() *fixture {
	own := member("head1", trivet.RoleStandby)
	own.Spec.Takeover = &trivet.Takeover{After: trivet.Duration(time.Minute),
		Reach: []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")}}
	other := member("head0", trivet.RoleVoter)
	other.Spec.BMC = &trivet.BMC{Protocol: "ipmi", Address: "10.0.9.5", Secret: "s"}
	return &fixture{heads: []*trivet.Head{other, own}, quorum: true, reachable: true, power: bmc.On,
		responds: map[string]bool{"head0": true}}
}

func member(name, role string) *trivet.Head {
	return &trivet.Head{Meta: trivet.Meta{Name: name}, Spec: trivet.HeadSpec{Role: role},
		Status: trivet.HeadStatus{State: trivet.HeadMember}}
}

func (f *fixture) keeper() *Keeper {
	return New(Config{Head: "head1", Heads: func() []*trivet.Head { return f.heads },
		Quorum: func() bool { return f.quorum },
		Ping: func(_ context.Context, h *trivet.Head) (bool, error) {
			quorum, ok := f.responds[h.Name]
			if !ok {
				return false, trivet.ErrUnavailable
			}
			return quorum, nil
		},
		BMC: func(context.Context, *trivet.Head) (bmc.Client, error) { return f, f.broken },
		Reach: func(_ context.Context, host netip.Addr) error {
			if host.String() == "10.0.0.2" && f.reachable {
				return nil
			}
			return errors.New("no response")
		},
		Begin: func(cause string) error { f.causes = append(f.causes, cause); return nil },
		Log:   slog.New(slog.NewTextHandler(io.Discard, nil))})
}

func (f *fixture) Power(context.Context) (bmc.State, error) { return f.power, f.broken }

func (f *fixture) SetPower(_ context.Context, want bmc.State) error {
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

// run lets a Keeper run for a while.
func run(t *testing.T, k *Keeper, d time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	k.Run(ctx)
}

func TestTakesOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture()
		k := f.keeper()
		run(t, k, 2*time.Minute)
		if facts := k.Facts(); facts == nil || facts.Problem != "" || facts.From != "head0" || len(f.sent) > 0 {
			t.Errorf("while all is well: %+v, %v", facts, f.sent)
		}
		f.lost()
		run(t, k, 55*time.Second)
		if len(f.sent) > 0 {
			t.Error("the other head was powered off before the time")
		}
		run(t, k, 20*time.Second)
		if len(f.causes) != 1 || f.power != bmc.Off || !strings.Contains(f.causes[0], "10.0.9.5") {
			t.Errorf("%v, %v", f.causes, f.power)
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
		"it is cut off":           {func(f *fixture) { f.reachable = false }, "cut off itself", false},
		"the other one responds":  {func(f *fixture) { f.responds["head0"] = false }, "head0 responds", false},
		"a BMC that fails":        {func(f *fixture) { f.broken = errors.New("timeout") }, "timeout", false},
		"it stays on":             {func(f *fixture) { f.stuck = true }, "reports on", true},
		"a third full head":       {func(f *fixture) { f.heads = append(f.heads, member("head2", "voter")) }, "3 full heads", false},
		"no BMC":                  {func(f *fixture) { f.heads[0].Spec.BMC = nil }, "trivet head set head0 --bmc", false},
		"the other one is gone":   {func(f *fixture) { f.heads[0].Status.State = trivet.HeadRemoved }, "no other full head", false},
		"it is being removed":     {func(f *fixture) { f.heads[1].Spec.Remove = true }, "being removed", false},
		"a quorum of the witness": {func(f *fixture) { witness(f, true) }, "witness", false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture()
				f.lost()
				c.change(f)
				k := f.keeper()
				run(t, k, 10*time.Minute)
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

func witness(f *fixture, quorum bool) {
	f.heads = append(f.heads, member("head2", trivet.RoleWitness))
	f.responds["head2"] = quorum
}

func TestNotRequested(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture()
		f.lost()
		f.heads[1].Spec.Takeover = nil
		k := f.keeper()
		run(t, k, 10*time.Minute)
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
		"trivet head set head0 --bm": func(f *fixture) { f.heads[0].Spec.BMC = nil },
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFixture()
			change(f)
			k := f.keeper()
			run(t, k, 2*time.Minute)
			if facts := k.Facts(); facts == nil || !strings.Contains(facts.Problem, text) || len(f.sent) > 0 {
				t.Errorf("%+v, want %q; sent %v", facts, text, f.sent)
			}
		})
	}
}

// A pause of this process, and each moment with a quorum, begin the time again.
func TestSilence(t *testing.T) {
	at := func(seconds int) time.Time { return time.Unix(1000+int64(seconds), 0) }
	var s silence
	for i, c := range []struct {
		at     int
		quorum bool
		want   time.Duration
	}{
		{0, true, 0}, {1, false, time.Second}, {3, false, 3 * time.Second}, {8, false, 8 * time.Second},
		{14, false, 1}, {15, false, time.Second + 1}, {16, true, 0}, {17, false, time.Second},
	} {
		if got := s.observe(at(c.at), c.quorum); got != c.want {
			t.Errorf("observation %d: %s, want %s", i, got, c.want)
		}
	}
	var first silence
	if got := first.observe(at(0), false); got != 1 {
		t.Errorf("the first one: %s", got)
	}
}

// Whatever happens and whenever, a takeover begins only while the other head is off and silent, and this one connected.
func TestProperty(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		changes := rapid.SliceOfN(rapid.IntRange(0, 9), 1, 40).Draw(rt, "changes")
		pauses := rapid.SliceOfN(rapid.IntRange(1, 90), len(changes), len(changes)).Draw(rt, "pauses")
		synctest.Test(t, func(t *testing.T) {
			f := newFixture()
			witness(f, true)
			k := f.keeper()
			begin := k.cfg.Begin
			k.cfg.Begin = func(cause string) error {
				_, responds := f.responds["head0"]
				if f.power != bmc.Off || responds || f.quorum || !f.reachable || f.responds["head2"] {
					t.Errorf("a takeover with %+v", f)
				}
				return begin(cause)
			}
			for i, change := range changes {
				f.happens(change)
				run(t, k, time.Duration(pauses[i])*time.Second)
			}
		})
	})
}

// happens changes one thing.
func (f *fixture) happens(what int) {
	switch what {
	case 0, 1:
		f.lost()
		delete(f.responds, "head2")
	case 2:
		f.quorum = !f.quorum
	case 3:
		f.reachable = !f.reachable
	case 4:
		f.power = bmc.On
	case 5:
		f.stuck = !f.stuck
	case 6:
		f.broken = errors.New("broken")
	case 7:
		f.broken = nil
	case 8:
		f.responds["head0"] = f.quorum
	case 9:
		f.responds["head2"] = f.quorum
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
	if err != nil || !o.Valid() || o.Cause != "it is off" || o.Incarnation != "1-a" {
		t.Fatalf("%+v, %v", o, err)
	}
	for what, change := range map[string]func(*Order){
		"older":               func(o *Order) { o.Uptime -= maxAge + time.Second },
		"of another boot":     func(o *Order) { o.Boot = "other" },
		"later than this now": func(o *Order) { o.Uptime += time.Hour },
	} {
		other := *o
		if change(&other); other.Valid() {
			t.Errorf("an order that is %s is valid", what)
		}
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
		if o, err := Read(dir); err != nil || o == nil || o.Valid() {
			t.Errorf("%q: %+v, %v", text, o, err)
		}
	}
}
