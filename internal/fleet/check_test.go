package fleet_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/store"
)

const failedToBoot = "accept claim boot expire "

// A machine in quarantine whose hardware has nothing wrong leaves it by itself, and only that.
func TestCheckEndsAQuarantine(t *testing.T) {
	r := newRack(t)
	r.releasing("")
	m := r.on(failedToBoot + "check boot tested")
	if st := m.get().Status; !strings.HasPrefix(st.Workflow, "check-"+m.name+"-") {
		t.Errorf("the run of the check is %s", st.Workflow)
	}
	m.want("q:releasing:stopping")
	r.must(m.do("off"))
	m.want("available")
	if st := m.get().Status; st.Reason != "" || st.Power != "off" || st.Reputation == nil {
		t.Errorf("after the check: %+v", st)
	}
}

// What is found is evidence, as any other failure, and the machine stays in quarantine. Another check may follow.
func TestCheckThatFindsSomething(t *testing.T) {
	for path, was := range map[string]string{"accept ": "an available machine", failedToBoot: "one in quarantine"} {
		r := newRack(t)
		r.releasing("")
		m := r.on(path + "check boot found")
		st := m.get().Status
		if want := "its check failed at test-memory of " + st.Workflow + ": input/output error"; st.Reason != want {
			t.Errorf("%s: %q, want %q", was, st.Reason, want)
		}
		r.must(m.do("off"))
		m.want("q:available")
		r.must(m.do("check"))
		r.must(m.do("boot"))
		r.must(m.do("tested"))
		r.must(m.do("off"))
		m.want("available")
	}
}

// A quarantine by an operator cancels the check, which then does not end it.
func TestQuarantineDuringACheck(t *testing.T) {
	r := newRack(t)
	r.releasing("")
	m := r.on(failedToBoot + "check boot quarantine")
	if err := m.do("tested"); !errors.Is(err, trivet.ErrFenced) {
		t.Errorf("the agent of a check that was cancelled: %v, want fenced", err)
	}
	r.must(m.do("off"))
	m.want("q:available")
}

// A machine that is in use is not checked, and neither is one in place of the wipe that it waits for. The error says
// what comes first.
func TestCheckIsRefused(t *testing.T) {
	for path, want := range map[string]string{
		"":                              "accept it first",
		installed:                       "it is active: only a machine",
		installed + "quarantine":        "in quarantine, and was active before",
		"accept claim boot":             "it is provisioning",
		installed + "wipe boot":         "is in progress",
		installed + "quarantine wipe":   "cancel it: trivet quarantine",
		failedToBoot + "check boot":     "is in progress", // another kind of check
		"accept check boot":             "is in progress",
		installed + "wipe boot broken ": "",
	} {
		r := newRack(t)
		r.releasing("")
		m := r.on(path)
		before := m.get().Status.Epoch
		err := m.do("check-all")
		if want == "" {
			r.must(err)
			continue
		}
		if !errors.Is(err, trivet.ErrConflict) || !strings.Contains(err.Error(), want) || m.get().Status.Epoch != before {
			t.Errorf("%q: %v, want %q", path, err, want)
		}
	}
}

// A check that cannot be made, by no fault of the machine, leaves it as it was: a platform without the test must not
// empty the pool.
func TestCheckThatCannotBeMade(t *testing.T) {
	r := newRack(t)
	r.releasing("")
	m := r.on("accept check boot unknown")
	m.want("releasing")
	r.must(m.do("off"))
	m.want("available")
	r = newRack(t)
	r.releasing("")
	m = r.on(failedToBoot)
	former := m.get().Status.Reason
	for _, command := range []string{"check", "boot", "unknown", "off"} {
		r.must(m.do(command))
	}
	m.want("q:available")
	if got := m.get().Status.Reason; got != former || former == "" {
		t.Errorf("its reason became %q; it was %q", got, former)
	}
}

// Without a BMC no one may have booted the machine: that is not its fault.
func TestCheckThatNoOneBoots(t *testing.T) {
	r := newRack(t)
	r.releasing("")
	m := r.on("accept ")
	r.write(func(tx *store.Tx) error {
		return r.changeMachine(tx, m.name, func(rec *trivet.Machine) { rec.Spec.BMC = nil })
	})
	r.must(m.do("check"))
	r.must(m.do("expire"))
	m.want("available")
	r.must(m.do("check"))
	r.must(m.do("boot"))
	r.must(m.do("found"))
	m.want("q:releasing")
}

// A machine that is reset while it is tested has shown a fault, however the test would end after it.
func TestResetDuringACheck(t *testing.T) {
	for _, path := range []string{"accept ", failedToBoot} {
		r := newRack(t)
		r.releasing("")
		m := r.on(path + "check boot")
		r.must(m.do("boot"))
		if err := m.do("tested"); !errors.Is(err, trivet.ErrFenced) {
			t.Errorf("the agent after the reset: %v, want fenced", err)
		}
		r.must(m.do("off"))
		m.want("q:available")
		if got := m.get().Status.Reason; !strings.Contains(got, "its check failed at test") {
			t.Errorf("its reason is %q", got)
		}
	}
}

// A check is no wipe: a machine whose wipe failed leaves the quarantine with what is on its disks kept from selectors.
func TestCheckAfterAFailedWipe(t *testing.T) {
	for path, want := range map[string]string{
		installed + "wipe boot broken off ":        "available+data",
		installed + "wipe boot broken off accept ": "available",
		installed + "wipe boot wiped off ":         "available",
	} {
		r := newRack(t)
		r.releasing("")
		m := r.on(path + "check boot tested off")
		if got := m.releaseState(); got != want {
			t.Errorf("%s: after the check it is %s, want %s", path, got, want)
		}
	}
}

// An agent of a release that has no test does not test: the machine boots again.
func TestCheckByAFormerAgent(t *testing.T) {
	for release, want := range map[trivet.Release]string{
		trivet.CurrentRelease: "releasing:running", "0.3.0": "releasing:booting", "": "releasing:booting",
	} {
		r := newRack(t)
		r.releasing("")
		r.AgentUp = func(string, int64) bool { return true }
		m := r.on("accept boot")
		r.write(func(tx *store.Tx) error {
			return r.changeMachine(tx, m.name, func(rec *trivet.Machine) { rec.Status.AgentRelease = release })
		})
		r.must(m.do("check"))
		if got := m.releaseState(); got != want {
			t.Errorf("a check with an agent of release %q: %s, want %s", release, got, want)
		}
	}
}
