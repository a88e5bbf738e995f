package heads_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/bmc"
	"github.com/trivet-project/trivet/internal/bmc/bmctest"
)

// host is the computer of a head: its BMC cuts the power of the head's process.
type host struct {
	*bmctest.Box
	address string
}

// newHost gives a head a BMC, whose secret has this name.
func newHost(t *testing.T, h, admin *head, secret string) *host {
	t.Helper()
	box := bmctest.NewBox()
	if err := box.SetPower(bmc.On); err != nil {
		t.Fatal(err)
	}
	sim, err := bmctest.StartIPMI(box, bmctest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sim.Stop() })
	admin.Apply(fmt.Sprintf("kind: Secret\nname: %s\nspec: {data: {user: %q, password: %q}, addresses: [127.0.0.0/8]}\n",
		secret, sim.Config.User, sim.Config.Password))
	off := make(chan struct{})
	go func() {
		defer close(off)
		for t.Context().Err() == nil {
			if box.Power() == bmc.Off {
				h.Kill()
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
	t.Cleanup(func() { <-off })
	return &host{box, sim.Config.Address}
}

// takeover returns what a head reports of its takeover.
func (h *head) takeover(name string) (facts *trivet.TakeoverFacts, err error) {
	r, _ := h.Trivet("status", "-o", "json") // it fails where an invariant does not hold
	var s trivet.StatusReport
	if err := json.Unmarshal([]byte(r.Stdout), &s); err != nil {
		return nil, err
	}
	for _, f := range s.Facts.Heads {
		if f.Name == name && f.Own != nil {
			return f.Own.Takeover, nil
		}
	}
	return nil, errors.New("no facts of " + name)
}

func (h *head) awaitTakeover(name, problem string) {
	h.Helper()
	h.Await(name+" could take over, but for "+problem, func() error {
		facts, err := h.takeover(name)
		if facts == nil || problem == "" && facts.Problem != "" || !strings.Contains(facts.Problem, problem) {
			return fmt.Errorf("%+v, %w", facts, err)
		}
		return nil
	})
}

func (h *head) refusesTo(args []string, texts ...string) {
	h.Helper()
	r, err := h.Trivet(args...)
	if err == nil {
		h.Errorf("%s succeeded: %s", args, r.All)
	}
	for _, text := range texts {
		if !strings.Contains(r.All, text) {
			h.Errorf("%s says %q, want %q", args, r.All, text)
		}
	}
}

// A head and a standby: the loss of the standby stops nothing. Where the head is lost, the standby takes over by
// itself, once the BMC of the head says that it is off, and not before.
func TestStandbyTakesOver(t *testing.T) {
	t.Parallel()
	h0, l := startWithLedger(t)
	h1 := h0.join("head1", "token", "--standby")
	if v := h0.awaitState("head1", "member"); v.Role != trivet.RoleStandby {
		t.Errorf("the standby is %+v", v)
	}
	h0.refusesTo([]string{"head", "token", "--standby"}, "head1 is the standby", "one at most",
		"trivet head replace head1")
	h0.refusesTo([]string{"head", "remove", "head0", "--yes"}, "no other full head that votes stays")
	h1.Kill()
	l.write()
	h1.Up()
	h0.awaitMember("head1")
	l.write()

	box := newHost(t, h0, h0, "bmc-head0")
	h0.refusesTo([]string{"head", "set", "head1", "--takeover-after", "1s", "--takeover-reach", "127.0.0.99"}, "30s")
	h0.refusesTo([]string{"head", "set", "head0", "--bmc", "10.0.0.1", "--bmc-secret", "bmc-head0"},
		"not among the addresses")
	h0.MustTrivet("head", "set", "head1", "--takeover-after", "30s", "--takeover-reach", "127.0.0.99")
	h0.awaitTakeover("head1", "the BMC of head0 is not known")
	h0.MustTrivet("head", "set", "head0", "--bmc", box.address, "--bmc-secret", "bmc-head0")
	h0.refusesTo([]string{"head", "set", "head1", "--bmc", box.address, "--bmc-secret", "bmc-head0"}, "that of head0")
	h0.awaitTakeover("head1", "")
	before := l.writes
	h0.Await("the standby has all", func() error {
		a, errA := h0.view()
		b, errB := h1.view()
		if a.Revision != b.Revision {
			return fmt.Errorf("%d and %d, %w", a.Revision, b.Revision, errors.Join(errA, errB))
		}
		return nil
	})

	box.Fail(errors.New("the BMC is broken"))
	h0.Signal(syscall.SIGSTOP) // it hangs
	h1.AwaitLog("the leader of the store is not heard any more")
	h1.AwaitLog("head0 is not known to be off, by its BMC")
	if v, err := h1.view(); err != nil || v.Quorum || len(v.Heads) != 2 {
		t.Errorf("the standby took over from a head that may run: %+v, %v", v, err)
	}
	box.Fail(nil)
	h1.Await("the head that was lost is off", func() error {
		if state := box.Power(); state != bmc.Off {
			return fmt.Errorf("it is %s", state)
		}
		return nil
	})
	h1.AwaitLog("took over")
	h1.awaitMember("head102") // names may be lost, too
	cl := h1.client(h1)
	l.cl = cl
	l.read(cl)
	l.write()
	if l.writes != before+1 {
		t.Errorf("%d writes", l.writes)
	}
	if out := h1.MustTrivet("recover", "list"); !strings.Contains(out, "head0 was last heard at 20") {
		t.Errorf("trivet recover list lacks the cause:\n%s", out)
	}

	h0.Start()
	h0.expectRefusal("serves nothing", "--rejoin")
	h0.Up("--rejoin", "--join", h1.API(), "--token", h1.token("token", "--standby"))
	h1.awaitMember("head103")
	l.write()
	l.read(h1.client(h0))
}

// A standby that votes has all that was acknowledged, whenever the other head is killed; meanwhile no write succeeds
// while either is down.
func TestSyncedStandby(t *testing.T) {
	t.Parallel()
	h0, l := startWithLedger(t)
	h1 := h0.join("head1", "token", "--standby", "--sync")
	h1.Kill()
	cl := h0.clientOnce(h0)
	if err := cl.RemoveHead(t.Context(), "head9"); err == nil || errors.Is(err, trivet.ErrNotFound) {
		t.Errorf("a write without the standby: %v", err)
	}
	h1.Up()
	h0.awaitMember("head1")
	for range 50 {
		l.write()
	}
	h0.Kill()
	h1.Stop()
	r := &recovery{T: t}
	r.run("recover", "--from-survivor", "--data-dir", h1.Dir, "--yes")
	h1.Up()
	l.read(h1.client(h1))
	l.cl = h1.client(h1)
	l.write()
}
