package provision_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/provision"
)

// Only what is in service is installed again; a refusal says what to do instead.
func TestCheckRedeploy(t *testing.T) {
	pause := &trivet.Pause{By: "op"}
	for name, c := range map[string]struct {
		st   trivet.ProvisionStatus
		want string
	}{
		"in service": {trivet.ProvisionStatus{State: trivet.ProvisionSucceeded}, ""},
		"frozen":     {trivet.ProvisionStatus{State: trivet.ProvisionFrozen}, "(decide first: trivet recover resolve -p a web)"},
		"waits": {trivet.ProvisionStatus{},
			"it has no machine: it waits for one (watch it: trivet provision -p a web --watch)"},
		"paused": {trivet.ProvisionStatus{Paused: pause},
			"it is paused, and has no machine yet (resume it: trivet resume -p a web)"},
		"running": {trivet.ProvisionStatus{State: trivet.ProvisionRunning, Machine: "m"}, "its run on m goes on (to begin " +
			"again: trivet quarantine m ends the run; then trivet retry -p a web --same-machine --accept)"},
		"running, paused": {trivet.ProvisionStatus{State: trivet.ProvisionRunning, Machine: "m", Paused: pause},
			"its run on m is paused (resume it: trivet resume -p a web)"},
		"failed": {trivet.ProvisionStatus{State: trivet.ProvisionFailed},
			"it has failed (install it again: trivet retry -p a web --same-machine --accept)"},
	} {
		p := &trivet.Provision{Meta: trivet.Meta{Project: "a", Name: "web"}, Status: c.st}
		err := provision.CheckRedeploy(p, trivet.RedeployRequest{})
		if (c.want == "") != (err == nil) || err != nil && !strings.HasSuffix(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	p := &trivet.Provision{Status: trivet.ProvisionStatus{State: trivet.ProvisionSucceeded}}
	long := trivet.RedeployRequest{Reason: strings.Repeat("x", trivet.MaxRedeployReason+1)}
	if err := provision.CheckRedeploy(p, long); !errors.Is(err, trivet.ErrTooLarge) {
		t.Errorf("a long reason: %v", err)
	}
}

// What earlier runs have left is gone, their number stays, and no second machine races.
func TestRedeploy(t *testing.T) {
	p := &trivet.Provision{Spec: trivet.ProvisionSpec{Race: trivet.RaceMachines}, Status: trivet.ProvisionStatus{
		State: trivet.ProvisionSucceeded, Attempts: 2, Workflow: "web-2", Spent: []trivet.SpentMachine{{}}, Withdrawn: 1,
		Replaced: &trivet.ReplacedMachine{}, Started: time.Unix(1, 0), Ended: time.Unix(2, 0)}}
	got := provision.Redeploy(p)
	if got.Spent != nil || got.Replaced != nil || got.Withdrawn != 0 || got.Attempts != 2 || got.Workflow != "web-2" ||
		!got.Started.IsZero() || !got.Ended.IsZero() {
		t.Errorf("%+v", got)
	}
	p.Status = got
	p.Status.State = trivet.ProvisionRunning
	if provision.WantsSecond(p) {
		t.Error("it wants a second machine")
	}
}
