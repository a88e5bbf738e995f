package workflow_test

import (
	"errors"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/workflow"
)

func TestDecideSync(t *testing.T) {
	report := []trivet.Report{{Seq: 3}}
	run := func(state trivet.WorkflowState, epoch int64) *trivet.Workflow {
		return &trivet.Workflow{Spec: trivet.WorkflowSpec{Epoch: 1}, Status: trivet.WorkflowStatus{State: state,
			Epoch: epoch, Acked: 2}}
	}
	m := &trivet.Machine{Status: trivet.MachineStatus{Epoch: 2}}
	for name, c := range map[string]struct {
		w      *trivet.Workflow
		sync   trivet.Sync
		want   workflow.SyncWrite
		fenced bool
	}{
		"a heartbeat of an idle agent": {nil, trivet.Sync{}, workflow.WriteNothing, false},
		"a heartbeat of an agent at work": {run(trivet.WorkflowRunning, 2), trivet.Sync{Epoch: 2},
			workflow.WriteNothing, false},
		"new reports": {run(trivet.WorkflowRunning, 2), trivet.Sync{Epoch: 2, Reports: report},
			workflow.WriteReports, false},
		"acknowledged reports": {run(trivet.WorkflowRunning, 2),
			trivet.Sync{Epoch: 2, Reports: []trivet.Report{{Seq: 2}}}, workflow.WriteNothing, false},
		"reports of an older epoch": {run(trivet.WorkflowRunning, 2), trivet.Sync{Epoch: 1, Reports: report},
			workflow.WriteNothing, true},
		"an agent that was declared lost": {run(trivet.WorkflowBooting, 2), trivet.Sync{Epoch: 2},
			workflow.WriteReports, false},
		"an idle agent of a claim": {run(trivet.WorkflowBooting, 0), trivet.Sync{}, workflow.WriteGrant, false},
		"an agent that held a run before": {run(trivet.WorkflowBooting, 0), trivet.Sync{Epoch: 1}, workflow.WriteGrant,
			false},
		"an agent that was lost before its grant reached it": {run(trivet.WorkflowBooting, 2), trivet.Sync{Epoch: 1},
			workflow.WriteGrant, false},
		"an agent that a remedy replaced": {run(trivet.WorkflowBooting, 0), trivet.Sync{Epoch: 2},
			workflow.WriteNothing, false},
		"an agent whose run waits to boot": {run(trivet.WorkflowStarting, 2), trivet.Sync{Epoch: 2},
			workflow.WriteNothing, false},
	} {
		got, err := workflow.DecideSync(m, c.w, &c.sync)
		if got != c.want || errors.Is(err, trivet.ErrFenced) != c.fenced || !c.fenced && err != nil {
			t.Errorf("%s: %d, %v; want %d, fenced: %t", name, got, err, c.want, c.fenced)
		}
	}
}

func TestAgentsAreFenced(t *testing.T) {
	m := &trivet.Machine{Status: trivet.MachineStatus{Epoch: 2, AgentKey: "key", BootID: "boot"}}
	w := &trivet.Workflow{Status: trivet.WorkflowStatus{State: trivet.WorkflowRunning, Epoch: 2, Acked: 2}}
	_, helloErr := workflow.CheckHello(m, &trivet.Hello{Key: "other", BootID: "other"}, 1)
	_, epochErr := workflow.CheckReports(m, w, &trivet.Sync{Epoch: 1, BootID: "boot"})
	_, bootErr := workflow.CheckReports(m, w, &trivet.Sync{Epoch: 2, BootID: "other"})
	_, noRunErr := workflow.CheckReports(m, nil, &trivet.Sync{Epoch: 2, BootID: "boot"})
	for name, err := range map[string]error{
		"another key": workflow.CheckKey(m, "other"), "an epoch of the future": workflow.CheckEpoch(m, 3),
		"a spent token":             helloErr,
		"reports of an older epoch": epochErr, "reports of another boot": bootErr, "reports without a run": noRunErr,
	} {
		if !errors.Is(err, trivet.ErrFenced) {
			t.Errorf("%s: %v, want fenced", name, err)
		}
	}
	if err := errors.Join(workflow.CheckKey(m, "key"), workflow.CheckEpoch(m, 2),
		workflow.CheckEpoch(m, 1)); err != nil {
		t.Errorf("the machine's own agent: %v", err)
	}
	if repeated, err := workflow.CheckHello(m, &trivet.Hello{Key: "key", BootID: "boot"}, 1); !repeated || err != nil {
		t.Errorf("a repeated hello: %t, %v", repeated, err)
	}
	if repeated, err := workflow.CheckHello(m, &trivet.Hello{Key: "other", BootID: "other"}, 2); repeated ||
		err != nil {
		t.Errorf("a hello with a good token: %t, %v", repeated, err)
	}
	w.Status.State = trivet.WorkflowSucceeded
	for seq, want := range map[int64]bool{2: true, 3: false} {
		sync := &trivet.Sync{Epoch: 2, BootID: "boot", Reports: []trivet.Report{{Seq: seq}}}
		if repeated, err := workflow.CheckReports(m, w, sync); repeated != want || err != nil {
			t.Errorf("report %d after the end: repeated %t, %v", seq, repeated, err)
		}
	}
}

func TestGrantedRun(t *testing.T) {
	m := &trivet.Machine{Status: trivet.MachineStatus{Epoch: 2, State: trivet.MachineProvisioning}}
	for name, c := range map[string]struct {
		state   trivet.WorkflowState
		epoch   int64
		granted bool
		acked   int64
		order   trivet.Order
	}{
		"its run":                {trivet.WorkflowRunning, 2, true, 5, trivet.OrderNone},
		"a run of another epoch": {trivet.WorkflowRunning, 1, false, 0, trivet.OrderNone},
		"a run that boots":       {trivet.WorkflowBooting, 0, false, 0, trivet.OrderNone},
		"an installed system":    {trivet.WorkflowStarting, 2, false, 5, trivet.OrderBoot},
	} {
		w := &trivet.Workflow{Status: trivet.WorkflowStatus{State: c.state, Epoch: c.epoch, Acked: 5}}
		order, _ := workflow.HelloOrder(m, w)
		if granted := workflow.GrantedRun(m, w) != nil; granted != c.granted || workflow.Acked(m, w) != c.acked ||
			order != c.order {
			t.Errorf("%s: granted %t, acked %d, order %q; want %+v", name, granted, workflow.Acked(m, w), order, c)
		}
	}
	if workflow.GrantedRun(m, nil) != nil || workflow.Acked(m, nil) != 0 {
		t.Error("a machine without a run has one")
	}
	m.Status.State = trivet.MachineActive
	if order, cause := workflow.HelloOrder(m, nil); order != trivet.OrderBoot || cause == "" {
		t.Errorf("an active machine: %q, %q", order, cause)
	}
	m.Status.State, m.Status.Former = trivet.MachineQuarantined, trivet.MachineActive
	if order, _ := workflow.HelloOrder(m, nil); order != trivet.OrderBoot {
		t.Errorf("one that was active before its quarantine: %q", order)
	}
}
