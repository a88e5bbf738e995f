package fleet_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/store"
)

// failedAtWrite is a rack whose template wipes, writes and then reboots, and a run of it that failed at the write.
func failedAtWrite(t *testing.T) *rack {
	t.Helper()
	r := newRack(t).upgraded(trivet.CurrentRelease)
	r.write(func(tx *store.Tx) error {
		template, err := r.Templates.In(tx).Get("default/t")
		if err != nil {
			return err
		}
		template.Spec.Actions = []trivet.Action{{Name: "wipe", Use: "noop"}, {Name: "seed", Use: "seed"},
			{Name: "write", Use: "noop"}, {Name: "reboot", Use: "reboot"}}
		return r.Templates.In(tx).Put(template)
	})
	r.provision("p")
	r.agentOf("k1", trivet.CurrentRelease)
	r.must(r.report(1, "k1",
		trivet.Report{Seq: 1, Action: "wipe", Attempt: 1, State: trivet.StepDone},
		trivet.Report{Seq: 2, Action: "seed", Attempt: 1, State: trivet.StepDone},
		trivet.Report{Seq: 3, Action: "write", Attempt: 1, State: trivet.StepFailed, Cause: "it broke"}))
	if p := r.provisionNamed("p"); p.Status.State != trivet.ProvisionFailed {
		t.Fatalf("the provision: %+v", p.Status)
	}
	return r
}

func (r *rack) retry(req trivet.RetryRequest) error {
	return r.Retry(r.Context(), "default/p", req, "alice")
}

// refuses requires that a retry is refused for a reason, and changes nothing.
func (r *rack) refuses(req trivet.RetryRequest, because string) {
	r.Helper()
	before := r.Store.Revision()
	err := r.retry(req)
	if !errors.Is(err, trivet.ErrConflict) || !strings.Contains(err.Error(), because) {
		r.Errorf("%+v: %v, want %q", req, err, because)
	}
	if r.Store.Revision() != before {
		r.Errorf("%+v: it was refused and has changed something", req)
	}
}

// A retry of one step goes on with it on the same machine. What was done before is not done again, but the seed is, as
// it names the run.
func TestRetryStep(t *testing.T) {
	r := failedAtWrite(t)
	r.refuses(trivet.RetryRequest{Step: "write"}, "the machine is quarantined (to use it nevertheless, add --accept")
	r.refuses(trivet.RetryRequest{Step: "reboot", Accept: true}, "comes after write, which is not done")
	r.must(r.retry(trivet.RetryRequest{Step: "write", Accept: true}))
	p, m := r.provisionNamed("p"), r.machine()
	if p.Status.State != trivet.ProvisionRunning || p.Status.Workflow != "p-2" || p.Status.Attempts != 2 ||
		p.Status.Failure != nil || m.Status.State != trivet.MachineClaimed {
		t.Fatalf("the provision: %+v, the machine: %+v", p.Status, m.Status)
	}
	if w := r.run("p-2"); w.Spec.Continues != "p-1" || w.Spec.Attempt != 2 || w.Spec.Epoch != m.Status.Epoch {
		t.Errorf("the run: %+v", w.Spec)
	}
	if got := r.reasons(); !strings.HasSuffix(got, "Quarantined Accepted Retried Claimed") {
		t.Errorf("events: %s", got)
	}
	r.refuses(trivet.RetryRequest{}, "it has not failed: its run goes on")
	r.agentOf("k2", trivet.CurrentRelease)
	m = r.machine()
	if run := r.GrantedRun(m); run == nil || len(run.Done) != 1 || run.Done[0] != "wipe" {
		t.Fatalf("its agent gets %+v", run)
	}
	r.must(r.report(m.Status.Epoch, "k2",
		trivet.Report{Seq: 1, Action: "seed", Attempt: 1, State: trivet.StepDone},
		trivet.Report{Seq: 2, Action: "write", Attempt: 1, State: trivet.StepDone},
		trivet.Report{Seq: 3, Action: "reboot", Attempt: 1, State: trivet.StepDone}))
	r.must(r.phoneHome(m.Status.Epoch))
	if p := r.provisionNamed("p"); p.Status.State != trivet.ProvisionSucceeded {
		t.Errorf("the provision: %+v", p.Status)
	}
	r.refuses(trivet.RetryRequest{}, "it has succeeded (to install its machine again")
}

// A step is not retried on a machine that had another run since: what the former one wrote may be gone.
func TestRetryStepAfterAnotherRun(t *testing.T) {
	r := failedAtWrite(t)
	r.must(r.Accept(t.Context(), "m1"))
	r.provision("other")
	r.refuses(trivet.RetryRequest{Step: "write", Accept: true}, "the machine is claimed")
	r.release("other")
	r.refuses(trivet.RetryRequest{Step: "write"}, "it is not the last run of machine m1 any more")
	r.must(r.retry(trivet.RetryRequest{SameMachine: true}))
	if w := r.run("p-2"); w.Spec.Continues != "" || w.Status.Step("wipe").State != trivet.StepWaiting {
		t.Errorf("from the beginning: %+v", w)
	}
}

// Without a step the provision waits for a machine as at first.
func TestRetryFromTheBeginning(t *testing.T) {
	r := failedAtWrite(t)
	r.must(r.retry(trivet.RetryRequest{}))
	r.must(r.Claim(t.Context(), "default/p"))
	if p := r.provisionNamed("p"); p.Status.State != trivet.ProvisionPending || p.Status.Machine != "" ||
		p.Status.Reason != "no machine is free: 1 quarantined" || !p.Status.Started.IsZero() {
		t.Errorf("its machine is in quarantine: %+v", p.Status)
	}
	r.refuses(trivet.RetryRequest{}, "it waits for a machine (watch it")
	r.must(r.Accept(t.Context(), "m1"))
	r.must(r.Offer(t.Context(), "m1"))
	if p := r.provisionNamed("p"); p.Status.State != trivet.ProvisionRunning || p.Status.Workflow != "p-2" {
		t.Errorf("after that was accepted: %+v", p.Status)
	}
}

// A retry may accept the machine.
func TestRetryAccepts(t *testing.T) {
	r := failedAtWrite(t)
	r.must(r.retry(trivet.RetryRequest{Accept: true}))
	if m := r.machine(); m.Status.State != trivet.MachineAvailable {
		t.Errorf("the machine: %+v", m.Status)
	}
	r.must(r.Claim(t.Context(), "default/p"))
	if p := r.provisionNamed("p"); p.Status.Machine != "m1" || p.Status.Attempts != 2 {
		t.Errorf("the provision: %+v", p.Status)
	}
}

// With spec.ifNoMachine a provision fails where no machine is free, the first one or an alternative.
func TestFailIfNoMachine(t *testing.T) {
	r := newRack(t).upgraded("0.3")
	spec := trivet.ProvisionSpec{Template: "t", Machine: "m1", IfNoMachine: trivet.NoMachineFail}
	create := func(name string) error {
		_, err := r.Store.Update(t.Context(), func(tx *store.Tx) error {
			return r.Provisions.In(tx).Create(&trivet.Provision{Meta: trivet.Meta{Project: "default", Name: name},
				Spec: spec})
		})
		return err
	}
	if err := create("p"); !errors.Is(err, trivet.ErrConflict) {
		t.Errorf("with an older head: %v", err)
	}
	r.upgraded(trivet.CurrentRelease)
	r.provision("holder")
	r.must(create("p"))
	r.must(r.Claim(t.Context(), "default/p"))
	p := r.provisionNamed("p")
	if p.Status.State != trivet.ProvisionFailed || p.Status.Ended.IsZero() || p.Status.Failure == nil ||
		p.Status.Reason != "no machine is free: 1 claimed (spec.ifNoMachine is fail)" {
		t.Errorf("no machine is free: %+v", p.Status)
	}
	r.release("holder")
	r.must(r.retry(trivet.RetryRequest{}))
	r.must(r.Claim(t.Context(), "default/p"))
	if p := r.provisionNamed("p"); p.Status.State != trivet.ProvisionRunning {
		t.Errorf("one is free: %+v", p.Status)
	}
}

// So does one whose machine was at fault, where there is no alternative.
func TestFailIfNoAlternative(t *testing.T) {
	r := newRack(t).upgraded(trivet.CurrentRelease)
	only := map[string]string{"only": "m1"}
	r.label("m1", only)
	r.provisionOf("p", trivet.ProvisionSpec{Template: "t", Selector: only, IfNoMachine: trivet.NoMachineFail})
	r.agentOf("k1", trivet.CurrentRelease)
	r.must(r.report(1, "k1", trivet.Report{Seq: 1, Action: "work", Attempt: 1, State: trivet.StepFailed}))
	r.must(r.Claim(t.Context(), "default/p"))
	if p := r.provisionNamed("p"); p.Status.State != trivet.ProvisionFailed || len(p.Status.Spent) != 1 ||
		p.Status.Reason != "no machine is free: 1 quarantined (spec.ifNoMachine is fail)" {
		t.Errorf("the provision: %+v", p.Status)
	}
}
