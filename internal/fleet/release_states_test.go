package fleet_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/workflow"
)

// releases is what outcomes is, for a machine that is released by a run: the state of the machine, and after a colon
// that of the run which releases it, "+data" where its disks hold data that is kept. The commands are those of
// outcomes, and: trivet release in each mode, the agent reports that the disks are wiped and verified, the agent
// reports that they cannot be wiped.
var releases = []string{`
              accept              quarantine        claim    boot                 delete
discovered    available           q:discovered      -        -                    -
available     -                   q:available       claimed  -                    -
claimed       -                   q:available       -        provisioning         available
provisioning  -                   q:available       -        -                    available
active        -                   q:active          -        -                    releasing
q:failed      available           -                 -        -                    -
q:active      active              -                 -        -                    q:releasing
wipe          available           q:releasing       -        releasing:running    -
wiping        available           q:releasing       -        -                    -
wiped         available           q:releasing       -        available            -
stop          available           q:releasing       -        available            -
keep          available+data      q:releasing+data  -        available+data       -
kept          available           q:available+data  -        -                    -
q:wipe        releasing:booting   q:releasing       -        q:releasing:running  -
q:wiping      releasing:running   q:releasing       -        -                    -
q:wiped       releasing:stopping  q:releasing       -        q:available          -
broken        releasing           -                 -        q:available          -
`, `
              expire            phone-home  off             wiped                 broken
discovered    -                 -           -               -                     -
available     -                 -           -               -                     -
claimed       q:available       -           -               -                     -
provisioning  q:available       -           -               -                     -
active        -                 -           -               -                     -
q:failed      -                 -           -               -                     -
q:active      -                 -           -               -                     -
wipe          q:releasing       -           -               -                     -
wiping        q:releasing       -           -               releasing:stopping    q:releasing
wiped         q:releasing       -           available       -                     -
stop          q:releasing       -           available       -                     -
keep          q:releasing+data  -           available+data  -                     -
kept          -                 -           -               -                     -
q:wipe        q:releasing       -           -               -                     -
q:wiping      q:releasing       -           -               q:releasing:stopping  q:releasing
q:wiped       q:releasing       -           q:available     -                     -
broken        -                 -           q:available     -                     -
`, `
              wipe                    no-wipe               keep-data                  check
discovered    -                       -                     -                          -
available     releasing:booting       releasing:stopping    releasing:stopping+data    releasing:booting
claimed       releasing:booting       releasing:stopping    releasing:stopping+data    -
provisioning  releasing:booting       releasing:stopping    releasing:stopping+data    -
active        releasing:booting       releasing:stopping    releasing:stopping+data    -
q:failed      q:releasing:booting     q:releasing:stopping  q:releasing:stopping+data  q:releasing:booting
q:active      q:releasing:booting     q:releasing:stopping  q:releasing:stopping+data  -
wipe          -                       releasing:stopping    releasing:stopping+data    -
wiping        -                       releasing:stopping    releasing:stopping+data    -
wiped         -                       -                     releasing:stopping+data    -
stop          releasing:booting       -                     releasing:stopping+data    -
keep          releasing:booting+data  releasing:stopping    -                          -
kept          releasing:booting+data  releasing:stopping    releasing:stopping+data    releasing:booting+data
q:wipe        -                       q:releasing:stopping  q:releasing:stopping+data  -
q:wiping      -                       q:releasing:stopping  q:releasing:stopping+data  -
q:wiped       -                       -                     q:releasing:stopping+data  -
broken        q:releasing:booting     q:releasing:stopping  q:releasing:stopping+data  q:releasing:booting+data
`}

const installed = "accept claim boot report phone-home "

var releaseStates = []stateBy{
	{"discovered", ""}, {"available", "accept"}, {"claimed", "accept claim"}, {"provisioning", "accept claim boot"},
	{"active", installed}, {"q:failed", "accept claim boot expire"}, {"q:active", installed + "quarantine"},
	{"wipe", installed + "wipe"}, {"wiping", installed + "wipe boot"}, {"wiped", installed + "wipe boot wiped"},
	{"stop", installed + "no-wipe"}, {"keep", installed + "keep-data"}, {"kept", installed + "keep-data off"},
	{"q:wipe", installed + "quarantine wipe"}, {"q:wiping", installed + "quarantine wipe boot"},
	{"q:wiped", installed + "quarantine wipe boot wiped"}, {"broken", installed + "wipe boot broken"},
}

// checks is what releases is, for a machine that is checked. The commands are also: trivet check, the agent reports
// that the test has found nothing, the agent reports that it has found something.
var checks = []string{`
             check                wipe                 no-wipe               tested                found        off
q:failed     q:releasing:booting  q:releasing:booting  q:releasing:stopping  -                     -            -
check        -                    -                    releasing:stopping    -                     -            -
testing      -                    releasing:booting    releasing:stopping    releasing:stopping    q:releasing  -
tested       -                    releasing:booting    -                     -                     -            available
q:check      -                    -                    q:releasing:stopping  -                     -            -
q:testing    -                    q:releasing:booting  q:releasing:stopping  q:releasing:stopping  q:releasing  -
q:tested     -                    q:releasing:booting  -                     -                     -            available
found        q:releasing:booting  q:releasing:booting  q:releasing:stopping  -                     -            q:available
kept:check   -                    -                    releasing:stopping    -                     -            -
`, `
             accept              boot                    quarantine        expire            phone-home
q:failed     available           -                       -                 -                 -
check        available           releasing:running       q:releasing       q:releasing       -
testing      available           q:releasing             q:releasing       q:releasing       -
tested       available           available               q:releasing       releasing         -
q:check      releasing:booting   q:releasing:running     q:releasing       q:releasing       -
q:testing    releasing:running   q:releasing             q:releasing       q:releasing       -
q:tested     releasing:stopping  available               q:releasing       q:releasing       -
found        releasing           q:available             -                 -                 -
kept:check   available+data      releasing:running+data  q:releasing+data  q:releasing+data  -
`}

var checkStates = []stateBy{
	{"q:failed", failedToBoot}, {"check", "accept check"}, {"testing", "accept check boot"},
	{"tested", "accept check boot tested"}, {"q:check", failedToBoot + "check"},
	{"q:testing", failedToBoot + "check boot"}, {"q:tested", failedToBoot + "check boot tested"},
	{"found", failedToBoot + "check boot found"}, {"kept:check", installed + "keep-data off check"},
}

func TestEveryCommandDuringARelease(t *testing.T) {
	for _, table := range releases {
		r := newRack(t)
		r.releasing("")
		r.inStates(releaseStates, table, (*subject).during)
	}
	for _, table := range checks {
		r := newRack(t)
		r.releasing("")
		r.inStates(checkStates, table, (*subject).during)
	}
}

// during does a command to a machine in a state, and returns the state after it.
func (s *subject) during(state, command string) string {
	s.Helper()
	before := s.releaseState()
	err := s.do(command)
	after := s.releaseState()
	if err != nil && after != before {
		s.Errorf("%s of a machine that was %s: %v, but it is %s", command, state, err, after)
	}
	s.check(state + ": " + command)
	s.wayOut(state + ": " + command)
	if after == before {
		return "-"
	}
	return after
}

// releasing sets the release of all heads to the current one, and what becomes of the disks of deleted provisions.
func (r *rack) releasing(mode trivet.ReleaseMode) {
	r.Helper()
	r.write(func(tx *store.Tx) error {
		return r.Sites.In(tx).Create(&trivet.Site{Meta: trivet.Meta{Name: trivet.SiteName},
			Status: trivet.SiteStatus{ClusterVersion: trivet.CurrentRelease}})
	})
	r.write(func(tx *store.Tx) error {
		site, err := r.Sites.In(tx).Get(trivet.SiteName)
		if err != nil {
			return err
		}
		site.Spec.Release = mode
		return r.Sites.In(tx).Put(site)
	})
}

// releaseState is the state of the machine, with that of the run that releases it.
func (s *subject) releaseState() string {
	s.Helper()
	m := s.get()
	text := s.state()
	if w := s.RunOf(m); w != nil && workflow.IsRelease(w) && !w.Status.State.Ended() {
		text += ":" + string(w.Status.State)
	}
	if m.Status.HoldsData != "" {
		text += "+data"
	}
	return text
}

func (s *subject) doRelease(m *trivet.Machine, command string) error {
	report := func(reports ...trivet.Report) error {
		return s.Report(s.Context(), &trivet.Sync{Machine: s.name, Epoch: m.Status.Epoch, BootID: m.Status.BootID,
			Reports: reports})
	}
	switch mode := trivet.ReleaseMode(command); mode {
	case trivet.ReleaseWipe, trivet.ReleaseNoWipe, trivet.ReleaseKeepData, trivet.ReleaseCheck, trivet.ReleaseCheckAll:
		return s.StartRelease(s.Context(), s.name, trivet.ReleaseRequest{Mode: mode, Provision: m.Status.Provision})
	case "wiped":
		return report(trivet.Report{Seq: 1, Action: "wipe", Attempt: 1, State: trivet.StepDone},
			trivet.Report{Seq: 2, Action: "verify", Attempt: 1, State: trivet.StepDone})
	case "tested":
		return report(trivet.Report{Seq: 1, Action: "test-memory", Attempt: 1, State: trivet.StepDone},
			trivet.Report{Seq: 2, Action: "test-disk", Attempt: 1, State: trivet.StepDone},
			trivet.Report{Seq: 3, Action: "test-network", Attempt: 1, State: trivet.StepDone})
	case "found":
		return report(trivet.Report{Seq: 1, Action: "test-memory", Attempt: 1, State: trivet.StepFailed, Final: true,
			Cause: "input/output error", Fault: trivet.FaultMachine})
	case "unknown":
		return report(trivet.Report{Seq: 1, Action: "test-memory", Attempt: 1, State: trivet.StepFailed, Final: true,
			Cause: "action test-memory is not known", Fault: trivet.FaultConfiguration})
	case "broken":
		return report(trivet.Report{Seq: 1, Action: "wipe", Attempt: 1, State: trivet.StepFailed, Final: true,
			Cause: "input/output error", Fault: trivet.FaultMachine})
	}
	return errors.ErrUnsupported
}

// wayOut does what an operator can do until the machine is available, and fails where that does not get there.
func (s *subject) wayOut(after string) {
	s.Helper()
	for _, command := range strings.Fields(strings.Repeat("accept wipe boot wiped off ", 3)) {
		if st := s.get().Status; st.State == trivet.MachineAvailable && st.HoldsData == "" {
			return
		}
		_ = s.do(command)
		s.check(after + ", and then " + command)
	}
	s.Errorf("after %s: no command makes the machine available: %s", after, s.releaseState())
}
