package provision_test

import (
	"strings"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/provision"
)

// Only what has failed is retried; a refusal says what to do instead.
func TestRetry(t *testing.T) {
	pause := &trivet.Pause{By: "op"}
	for name, c := range map[string]struct {
		st   trivet.ProvisionStatus
		want string
	}{
		"succeeded": {trivet.ProvisionStatus{State: trivet.ProvisionSucceeded},
			"it has succeeded (to install its machine again: trivet redeploy -p a web)"},
		"waits":   {trivet.ProvisionStatus{}, "it waits for a machine (watch it: trivet provision -p a web --watch)"},
		"paused":  {trivet.ProvisionStatus{Paused: pause}, "it is paused (resume it: trivet resume -p a web)"},
		"running": {trivet.ProvisionStatus{State: trivet.ProvisionRunning}, "its run goes on (watch it: "},
		"failed":  {trivet.ProvisionStatus{State: trivet.ProvisionFailed}, ""},
	} {
		got, err := provision.Retry(c.st, "a/web", "op")
		switch {
		case c.want == "" && (err != nil || got.State != trivet.ProvisionPending):
			t.Errorf("%s: %+v, %v", name, got, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	failed := trivet.ProvisionStatus{State: trivet.ProvisionFailed, Attempts: 2, Workflow: "web-2",
		Failure: &trivet.Failure{}, Spent: []trivet.SpentMachine{{}}, Started: time.Unix(1, 0), Ended: time.Unix(2, 0)}
	got, err := provision.Retry(failed, "default/web", "op")
	if err != nil || got.Failure != nil || got.Spent != nil || got.Attempts != 2 || !got.Started.IsZero() ||
		!got.Ended.IsZero() || got.Reason != "retried by op" {
		t.Errorf("%+v, %v", got, err)
	}
}
