package fleet_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
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
		if want := "its check failed at test of " + st.Workflow + ": input/output error"; st.Reason != want {
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
		installed + "wipe boot":         "it is releasing",
		installed + "quarantine wipe":   "cancel it: trivet quarantine",
		failedToBoot + "check boot":     "",
		installed + "wipe boot broken ": "",
	} {
		r := newRack(t)
		r.releasing("")
		m := r.on(path)
		before := m.get().Status.Epoch
		err := m.do("check-all")
		if path == failedToBoot+"check boot" {
			want = "is in progress" // another kind of check
		}
		if want == "" {
			r.must(err)
			continue
		}
		if !errors.Is(err, trivet.ErrConflict) || !strings.Contains(err.Error(), want) || m.get().Status.Epoch != before {
			t.Errorf("%q: %v, want %q", path, err, want)
		}
	}
}
