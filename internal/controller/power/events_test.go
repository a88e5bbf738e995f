package power

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/bmc"
	"github.com/trivet-project/trivet/internal/bmc/bmctest"
	"github.com/trivet-project/trivet/internal/fleet"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/storetest"
	"github.com/trivet-project/trivet/internal/workflow"
)

// failedOn writes a site of a release and a machine, behind a BMC, that has just failed in a run and is powered off.
func failedOn(t *testing.T, f *fleet.Fleet, release trivet.Release, cfg bmc.Config, failure trivet.Failure) {
	t.Helper()
	intent := trivet.PowerIntent{Want: "off", Until: time.Now().Add(workflow.IntentTimeout)}
	putBehind(t, f, "m", intent, cfg)
	_, err := f.Store.Update(t.Context(), func(tx *store.Tx) error {
		m, err := f.Machines.In(tx).Get("m")
		if err != nil {
			return err
		}
		m.Status.Workflow = "m-1"
		w := &trivet.Workflow{Meta: trivet.Meta{Project: "default", Name: "m-1"},
			Spec: trivet.WorkflowSpec{Machine: "m", MachineUID: m.UID},
			Status: trivet.WorkflowStatus{State: trivet.WorkflowFailed, Failure: &failure,
				Started: time.Now().Add(-time.Hour), Ended: time.Now()}}
		if err := f.Sites.In(tx).Put(&trivet.Site{Meta: trivet.Meta{Name: trivet.SiteName},
			Status: trivet.SiteStatus{ClusterVersion: release}}); err != nil {
			return err
		}
		if err := f.Workflows.In(tx).Put(w); err != nil {
			return err
		}
		return f.Machines.In(tx).Put(m)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A machine that is powered off because it was at fault leaves the event log of its BMC with the failure: what is of
// the run. Whatever the BMC does instead, the machine is off.
func TestEventLogIsKept(t *testing.T) {
	now := time.Now()
	fault := trivet.Failure{Type: trivet.FaultMachine, Step: trivet.StepDHCP, Cause: "no DHCP request"}
	network, had := fault, fault
	network.Type, had.EventLog = trivet.FaultNetwork, "x"
	entries := []bmctest.LogEntry{{Created: now.Add(-2 * time.Hour), Message: "before"},
		{Created: now.Add(-time.Minute), Severity: "Critical", Message: "DIMM 3 failed"}, {Message: "undated"}}
	failing := func(w http.ResponseWriter) { w.WriteHeader(http.StatusInternalServerError) }
	for name, c := range map[string]struct {
		release trivet.Release
		failure trivet.Failure
		log     *bmctest.Log
		answer  func(http.ResponseWriter) // of the log
		want    string
	}{
		"kept": {trivet.CurrentRelease, fault, &bmctest.Log{Entries: entries, Now: now}, nil,
			now.Add(-time.Minute).UTC().Format(time.DateTime) + " Critical: DIMM 3 failed\nno time             undated"},
		"another clock": {trivet.CurrentRelease, fault, &bmctest.Log{Entries: entries[:1], Now: now.Add(-9 * time.Hour)}, nil,
			"[the clock of the BMC is 9h0m"},
		"another fault":    {trivet.CurrentRelease, network, &bmctest.Log{Entries: entries, Now: now}, nil, ""},
		"an earlier head":  {"0.3", fault, &bmctest.Log{Entries: entries, Now: now}, nil, ""},
		"once":             {trivet.CurrentRelease, had, &bmctest.Log{Entries: entries, Now: now}, nil, "x"},
		"nothing since":    {trivet.CurrentRelease, fault, &bmctest.Log{Entries: entries[:1], Now: now}, nil, ""},
		"no log":           {trivet.CurrentRelease, fault, nil, nil, ""},
		"a log that fails": {trivet.CurrentRelease, fault, &bmctest.Log{Entries: entries, Now: now}, failing, ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := fleet.New(storetest.New(t, state.New), "head0")
			box := bmctest.NewBox()
			if err := box.SetPower(bmc.On); err != nil {
				t.Fatal(err)
			}
			failedOn(t, f, c.release, serve(t, box, c.log, c.answer), c.failure)
			ctl := newController(f)
			ctl.note("m", intentOf(t, f), time.Now())
			mustReconcile(t, ctl, "m", false)
			powered{box}.mustGet(t, "on, off")
			w, err := f.Workflows.Get("default/m-1")
			if err != nil {
				t.Fatal(err)
			}
			got := w.Status.Failure.EventLog
			if got != c.want && (c.want == "" || !strings.HasPrefix(got, c.want)) {
				t.Errorf("the event log is %q; want %q", got, c.want)
			}
			if m, err := f.Machines.Get("m"); err != nil || m.Status.Power != "off" || m.Status.Intent != nil {
				t.Errorf("the machine is %+v, %v", m.Status, err)
			}
		})
	}
}

// A log that hangs delays neither the record that the machine is off, nor the next intent.
func TestNextIntentEndsTheReading(t *testing.T) {
	f := fleet.New(storetest.New(t, state.New), "head0")
	c := newController(f)
	box, reading, release := bmctest.NewBox(), make(chan struct{}), make(chan struct{})
	defer close(release)
	cfg := serve(t, box, &bmctest.Log{}, func(http.ResponseWriter) {
		close(reading)
		<-release
	})
	failedOn(t, f, trivet.CurrentRelease, cfg, trivet.Failure{Type: trivet.FaultMachine, Step: trivet.StepDHCP})
	c.note("m", intentOf(t, f), time.Now())
	done := make(chan struct{})
	watch := f.Store.Watch(0, "Machine")
	go func() {
		defer close(done)
		mustReconcile(t, c, "m", false)
	}()
	<-reading
	begin := time.Now()
	next := trivet.PowerIntent{Want: "on", Until: time.Now().Add(2 * workflow.IntentTimeout)}
	mustChange(t, f, "m", func(s *trivet.MachineStatus) {
		if s.Intent != nil || s.Power != "off" {
			t.Errorf("while the log is read, the record says %+v", s)
		}
		s.Intent = &next
	})
	for ended := false; !ended; {
		events, err := watch.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			c.Affected(e)
			now := e.Record().(*trivet.Machine).Status.Intent
			ended = ended || now != nil && workflow.SameIntent(*now, next)
		}
	}
	<-done
	if took := time.Since(begin); took > eventsTimeout-time.Second {
		t.Errorf("the reading ended after %s", took)
	}
}

// The text is bounded, also where the BMC's entries are not.
func TestEventText(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var long []bmc.Entry
	for i := range 300 {
		long = append(long, bmc.Entry{Time: now, Text: fmt.Sprint(i, strings.Repeat("x", 230))})
	}
	if got := eventText(bmc.Events{Entries: long}, now, now); len(got) > maxEventBytes ||
		strings.Count(got, "\n") != 15 || !strings.Contains(got, "299x") {
		t.Errorf("%d bytes, %d lines", len(got), strings.Count(got, "\n"))
	}
	for want, events := range map[string]bmc.Events{
		"":                      {Now: now},
		"2026-01-02 03:04:05 a": {Entries: []bmc.Entry{{Time: now.Add(-time.Hour), Text: "old"}, {Time: now, Text: "a"}}},
		"[the clock of the BMC is not set; these are its last entries]\nno time             a": {
			Entries: []bmc.Entry{{Text: "a"}}},
		"[the clock of the BMC is 1h0m0s ahead; these are its last entries]\n2026-01-02 04:04:05 a": {
			Entries: []bmc.Entry{{Time: now.Add(time.Hour), Text: "a"}}},
		"[the clock of the BMC is 2h0m0s behind; these are its last entries]\n2026-01-02 01:04:05 a": {
			Now: now.Add(-2 * time.Hour), Entries: []bmc.Entry{{Time: now.Add(-2 * time.Hour), Text: "a"}}},
	} {
		if got := eventText(events, now, now); got != want {
			t.Errorf("got %q; want %q", got, want)
		}
	}
}

func intentOf(t *testing.T, f *fleet.Fleet) trivet.PowerIntent {
	t.Helper()
	m, err := f.Machines.Get("m")
	if err != nil {
		t.Fatal(err)
	}
	return *m.Status.Intent
}

// serve runs a Redfish service with an event log, whose entries are answered otherwise where answer is not nil.
func serve(t *testing.T, box *bmctest.Box, log *bmctest.Log, answer func(http.ResponseWriter)) bmc.Config {
	t.Helper()
	service := bmctest.NewService(box)
	if log != nil {
		service.SetLog(*log)
	}
	cfg := bmctest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if answer != nil && r.URL.Path == bmctest.LogPath+"/Entries" {
			answer(w)
			return
		}
		service.ServeHTTP(w, r)
	}))
	cfg.User, cfg.Password = service.User, service.Password
	return cfg
}
