package fleet_test

import (
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/store"
)

// A machine whose run ends in a power-off is off, and no system of it is up.
func TestRunEndsInPowerOff(t *testing.T) {
	r := newRack(t)
	r.write(func(tx *store.Tx) error {
		return r.Templates.In(tx).Put(&trivet.Template{Meta: trivet.Meta{Project: "default", Name: "t"},
			Spec: trivet.TemplateSpec{Actions: []trivet.Action{{Name: "off", Use: "poweroff"}}}})
	})
	r.provision("p")
	r.must(r.hello("a", 0))
	if got := r.machine().Status.Power; got != "on" {
		t.Errorf("with an agent the machine is %q", got)
	}
	r.must(r.report(1, "a", trivet.Report{Seq: 1, Action: "off", Attempt: 1, State: trivet.StepDone}))
	if st := r.machine().Status; st.Power != "off" || !st.Activated.IsZero() || st.Reason == "" {
		t.Errorf("after the power-off: %+v", st)
	}
}

// A machine whose installed system phones home is on.
func TestRunEndsInSystem(t *testing.T) {
	r := newRack(t)
	r.provision("p")
	r.must(r.hello("a", 0))
	r.must(r.report(1, "a", trivet.Report{Seq: 1, Action: "work", Attempt: 1, State: trivet.StepDone},
		trivet.Report{Seq: 2, Action: "reboot", Attempt: 1, State: trivet.StepDone}))
	r.must(r.phoneHome(1))
	if st := r.machine().Status; st.Power != "on" || st.Activated.IsZero() || st.Reason != "" {
		t.Errorf("after the phone-home: %+v", st)
	}
}
