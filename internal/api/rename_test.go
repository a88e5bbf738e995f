package api_test

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

// renamer is an agent of a head on which machines can be renamed, with its client.
func renamer(t *testing.T) (*agent, *client.Client) {
	t.Helper()
	a := newAgent(t)
	a.keepFormer() // the release of the cluster
	go func() { _ = a.handler.Run(t.Context()) }()
	return a, a.client(a.admin)
}

// An idle agent learns at once that its machine was renamed, also where the response was lost: it is known by the
// former name, until it has the new one. It keeps its epoch, and gets the next run.
func TestAgentOfRenamedMachine(t *testing.T) {
	t.Parallel()
	a, c := renamer(t)
	if _, err := a.hello(0); err != nil {
		t.Fatal(err)
	}
	got, done := new(trivet.Grant), make(chan error, 1)
	go func() {
		g, err := a.send("/agent/v1/sync", &trivet.Sync{Machine: "m1", BootID: a.bootID, Wait: trivet.MaxWait,
			Progress: &trivet.Progress{Action: "waiting"}})
		got = g
		done <- err
	}()
	a.awaitHeard()
	if err := c.Rename(t.Context(), "m1", trivet.RenameRequest{Name: "r1-u12"}); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil || got.Machine != "r1-u12" || got.Epoch != 1 || got.Order != trivet.OrderNone {
		t.Fatalf("the response to the agent that waits: %+v, %v", got, err)
	}
	if g, err := a.sync(0, time.Minute); err != nil || g.Machine != "r1-u12" { // by the former name
		t.Fatalf("the next one: %+v, %v", g, err)
	}
	put(a.head, a.fleet.Provisions, &trivet.Provision{Meta: trivet.Meta{Project: "default", Name: "p"},
		Spec: trivet.ProvisionSpec{Template: "t", Machine: "r1-u12"}})
	if err := a.fleet.Claim(t.Context(), "default/p"); err != nil {
		t.Fatal(err)
	}
	if g, err := a.sync(0, time.Minute); err != nil || g.Run == nil || g.Run.Spec.Machine != "r1-u12" {
		t.Fatalf("the run: %+v, %v", g, err)
	}
}

// No machine is created with the former name, also without a MAC: the agent that has it is that of the renamed one, and
// another agent is not known.
func TestAgentsOfAFormerName(t *testing.T) {
	t.Parallel()
	a, c := renamer(t)
	if _, err := a.hello(0); err != nil {
		t.Fatal(err)
	}
	if err := c.Rename(t.Context(), "m1", trivet.RenameRequest{Name: "new"}); err != nil {
		t.Fatal(err)
	}
	machines := client.Of[trivet.Machine](c)
	for _, m := range []*trivet.Machine{machine("m1"), machine("m1", "52:54:00:00:00:09")} {
		if _, err := machines.Create(t.Context(), m); !errors.Is(err, trivet.ErrExists) ||
			!strings.Contains(err.Error(), "m1 was the name of machine new") {
			t.Errorf("a machine of the former name: %v", err)
		}
	}
	if g, err := a.sync(0, 0); err != nil || g.Machine != "new" {
		t.Errorf("the agent of the renamed machine: %+v, %v", g, err)
	}
	other := a.head.agent("boot-2")
	if _, err := other.sync(0, 0); !refusedFor(err, "401") {
		t.Errorf("an agent that is not registered: %v", err)
	}
}

// A hello by a boot script of the former name, and a repeated one, are those of the machine.
func TestHelloOfRenamedMachine(t *testing.T) {
	t.Parallel()
	a, c := renamer(t)
	hello := a.helloOf(0)
	if err := c.Rename(t.Context(), "m1", trivet.RenameRequest{Name: "new"}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if g, err := a.send("/agent/v1/hello", hello); err != nil || g.Machine != "new" || g.Epoch != 1 {
			t.Errorf("%+v, %v", g, err)
		}
	}
}

// The former name leads to the new one, and files that have it create no second machine.
func TestFormerNameOfAMachine(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	h.keepFormer()
	c := h.client(h.admin)
	machines := client.Of[trivet.Machine](c)
	was, err := machines.Create(t.Context(), machine("m1", macA))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the response may be lost
		if err := c.Rename(t.Context(), "m1", trivet.RenameRequest{Name: "r1-u12", UID: was.UID}); err != nil {
			t.Fatal(err)
		}
	}
	_, err = machines.Get(t.Context(), "m1")
	if !errors.Is(err, trivet.ErrNotFound) || !strings.Contains(err.Error(), "trivet describe machine r1-u12") {
		t.Errorf("get: %v", err)
	}
	_, err = machines.Create(t.Context(), machine("m1", macA))
	if !errors.Is(err, trivet.ErrExists) || !strings.Contains(err.Error(), "machine m1 was renamed to r1-u12") {
		t.Errorf("create: %v", err)
	}
	status, answer := h.ask(h.admin, "POST", "/v1/machines/r1-u12/rename", `{"name":"x","force":true}`)
	if status != http.StatusUnprocessableEntity {
		t.Errorf("an unknown field: %d %v", status, answer)
	}
	if log := h.audit(client.AuditOptions{}); !slices.ContainsFunc(log, func(line string) bool {
		return strings.Contains(line, "root rename Machine/m1 ok") && strings.Contains(line, "machine/r1-u12")
	}) {
		t.Errorf("the log is %q", log)
	}
	put(h, h.fleet.Provisions, &trivet.Provision{Meta: trivet.Meta{Project: "default", Name: "p"},
		Spec:   trivet.ProvisionSpec{Template: "t", Machine: "r1-u12"},
		Status: trivet.ProvisionStatus{State: trivet.ProvisionSucceeded}})
	_, err = client.Of[trivet.Provision](c).Patch(t.Context(), "p", []byte(`{"spec":{"machine":"m1"}}`), 0)
	if !errors.Is(err, trivet.ErrConflict) || !strings.Contains(err.Error(), "machine m1 was renamed to r1-u12") {
		t.Errorf("a provision that names the former name: %v", err)
	}
}

// The agent of a machine has no part in the runs of another one that had its name before.
func TestLogsOfAnEarlierMachine(t *testing.T) {
	t.Parallel()
	a := newAgent(t)
	if _, err := a.hello(0); err != nil {
		t.Fatal(err)
	}
	a.claim()
	put(a.head, a.fleet.Workflows, &trivet.Workflow{Meta: trivet.Meta{Project: "default", Name: "q-1"},
		Spec: trivet.WorkflowSpec{Machine: "m1", MachineUID: "another", Provision: "q",
			Actions: []trivet.Action{{Name: "one", Use: "noop"}}},
		Status: trivet.WorkflowStatus{State: trivet.WorkflowSucceeded}})
	for run, want := range map[string]int{"p-1": http.StatusNoContent, "q-1": http.StatusForbidden} {
		req := a.request(t.Context(), "/agent/v1/logs?workflow="+run+"&action=one&epoch=2&attempt=1&offset=0", "text")
		resp := must(a.http().Do(req))(t)
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s: %d, want %d", run, resp.StatusCode, want)
		}
	}
}
