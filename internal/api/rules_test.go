package api_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

func TestMachineWithARunCannotBeDeleted(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	ctx := t.Context()
	admin := h.client(h.admin)
	machines := client.Of[trivet.Machine](admin)
	m := machine("m1", macA)
	m.Status = trivet.MachineStatus{State: trivet.MachineClaimed, Workflow: "p-1", Provision: "p"}
	put(h, h.fleet.Machines, m)
	w := &trivet.Workflow{Meta: trivet.Meta{Project: "default", Name: "p-1"},
		Spec:   trivet.WorkflowSpec{Machine: "m1", Provision: "p"},
		Status: trivet.WorkflowStatus{State: trivet.WorkflowRunning}}
	put(h, h.fleet.Workflows, w)
	put(h, h.fleet.Provisions, &trivet.Provision{Meta: trivet.Meta{Project: "default", Name: "p"},
		Spec:   trivet.ProvisionSpec{Template: "t", Machine: "m1"},
		Status: trivet.ProvisionStatus{State: trivet.ProvisionRunning, Machine: "m1", Workflow: "p-1"}})
	if err := machines.Delete(ctx, "m1"); !errors.Is(err, trivet.ErrConflict) ||
		!strings.Contains(err.Error(), "trivet delete provision p") {
		t.Errorf("with a provision: %v", err)
	}
	if err := client.Of[trivet.Provision](admin).Delete(ctx, "p"); err != nil { // releases the machine
		t.Fatal(err)
	}
	got, err := machines.Get(ctx, "m1")
	if err != nil || got.Status.State != trivet.MachineAvailable || got.Status.Provision != "" {
		t.Errorf("%+v, %v", got, err)
	}
	if run, err := h.fleet.Workflows.Get("default/p-1"); err != nil || run.Status.State != trivet.WorkflowCancelled {
		t.Errorf("%+v, %v", run, err)
	}
	if err := machines.Delete(ctx, "m1"); err != nil {
		t.Errorf("a free machine: %v", err)
	}
}

func TestStartedProvisionIsConstant(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	ctx := t.Context()
	provisions := client.Of[trivet.Provision](h.client(h.admin))
	put(h, h.fleet.Templates, &trivet.Template{Meta: trivet.Meta{Project: "default", Name: "t"},
		Spec: trivet.TemplateSpec{Actions: []trivet.Action{{Name: "a", Use: "noop"}}}})
	machines := client.Of[trivet.Machine](h.client(h.admin))
	must(machines.Create(ctx, machine("m1", macA)))(t)
	must(machines.Create(ctx, machine("m2", macB)))(t)
	p, err := provisions.Create(ctx, &trivet.Provision{Meta: trivet.Meta{Project: "default", Name: "p"},
		Spec: trivet.ProvisionSpec{Template: "t", Machine: "m1"}})
	if err != nil {
		t.Fatal(err)
	}
	p.Spec.Machine = "m2"
	if p, err = provisions.Update(ctx, p); err != nil {
		t.Fatalf("pending: %v", err)
	}
	begun := *p
	begun.Revision, begun.Status.State = 0, trivet.ProvisionRunning
	put(h, h.fleet.Provisions, &begun)
	p.Labels = map[string]string{"a": "b"}
	if _, err := provisions.Update(ctx, p); err != nil {
		t.Errorf("labels: %v", err)
	}
	p.Spec.Machine, p.Generation = "m3", 0
	if _, err := provisions.Update(ctx, p); !errors.Is(err, trivet.ErrConflict) {
		t.Errorf("spec: %v", err)
	}
}

func TestNetworksDoNotOverlap(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	networks := client.Of[trivet.Network](h.client(h.admin))
	for _, tc := range []struct {
		name, cidr string
		ok         bool
	}{{"a", "10.0.0.0/24", true}, {"b", "10.0.1.0/24", true}, {"c", "10.0.0.0/16", false},
		{"d", "10.0.1.128/25", false}, {"e", "10.1.0.0/16", true}} {
		_, err := networks.Create(t.Context(), &trivet.Network{Meta: trivet.Meta{Name: tc.name},
			Spec: trivet.NetworkSpec{CIDR: netip.MustParsePrefix(tc.cidr)}})
		if (err == nil) != tc.ok || err != nil && !errors.Is(err, trivet.ErrInvalid) {
			t.Errorf("%s %s: %v", tc.name, tc.cidr, err)
		}
	}
}

func TestAcceptAndQuarantine(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	ctx := t.Context()
	admin := h.client(h.admin)
	m := machine("m-1", macA)
	m.Status.State = trivet.MachineDiscovered
	put(h, h.fleet.Machines, m)
	if err := admin.Accept(ctx, "m-1"); err != nil {
		t.Fatal(err)
	}
	if err := admin.Quarantine(ctx, "m-1", "noise"); err != nil {
		t.Fatal(err)
	}
	got, err := h.fleet.Machines.Get("m-1")
	if err != nil || got.Status.State != trivet.MachineQuarantined || got.Status.Reason != "noise" {
		t.Errorf("%+v, %v", got, err)
	}
	events, _, err := client.Of[trivet.Event](admin).List(ctx, client.ListOptions{Fields: "spec.subject=machine/m-1"})
	if err != nil || len(events) != 2 {
		t.Errorf("%d events, %v", len(events), err)
	}
	if err := admin.Quarantine(ctx, "m-1", ""); !errors.Is(err, trivet.ErrInvalid) {
		t.Errorf("no reason: %v", err)
	}
	if err := admin.Accept(ctx, "none"); !errors.Is(err, trivet.ErrNotFound) {
		t.Errorf("no machine: %v", err)
	}
}
