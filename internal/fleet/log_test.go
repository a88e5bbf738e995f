package fleet_test

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
)

// The log at info names the machine of a claim, of a failed run and of a run that ended well, once for each, and the
// provision that ended; what is repeated is not logged.
func TestLogOfARun(t *testing.T) {
	r := newRack(t)
	var log strings.Builder
	r.Log = slog.New(slog.NewTextHandler(&log, nil))
	r.provision("p")
	r.must(r.Claim(r.Context(), "default/p"))
	epoch := r.machine().Status.Epoch
	r.must(r.hello("k1", epoch))
	epoch = r.machine().Status.Epoch
	r.must(r.report(epoch, "k1", trivet.Report{Seq: 1, Action: "work", Attempt: 1, State: trivet.StepFailed,
		Fault: trivet.FaultConfiguration, Cause: "no such file"}))
	r.release("p")
	r.provision("q")
	r.must(r.hello("k2", r.machine().Status.Epoch))
	epoch = r.machine().Status.Epoch
	r.must(r.report(epoch, "k2", trivet.Report{Seq: 1, Action: "work", Attempt: 1, State: trivet.StepDone},
		trivet.Report{Seq: 2, Action: "reboot", Attempt: 1, State: trivet.StepDone}))
	r.must(r.phoneHome(epoch))
	r.must(r.phoneHome(epoch))
	for text, times := range map[string]int{
		"machine=m1 reason=Claimed": 2, "machine=m1 reason=Failed": 1, "machine=m1 reason=Succeeded": 1,
		"provision=default/p state=failed machine=m1": 1, "provision=default/q state=succeeded machine=m1": 1,
		"no such file": 2, "reason=BootStepReached": 0,
	} {
		if n := strings.Count(log.String(), text); n != times {
			t.Errorf("%q is in the log %d times, want %d:\n%s", text, n, times, &log)
		}
	}
}
