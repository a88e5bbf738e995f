package api_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

func TestRelease(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	ctx := t.Context()
	operator := h.client(h.account("op", "operator"))
	m := machine("m1", "52:54:00:00:00:01")
	m.Spec.BMC = &trivet.BMC{Protocol: "redfish", Address: "10.0.8.1", Secret: "bmc"}
	m.Status.State = trivet.MachineAvailable
	put(h, h.fleet.Machines, m)

	err := operator.Release(ctx, "m1", trivet.ReleaseRequest{})
	if !errors.Is(err, trivet.ErrConflict) || !strings.Contains(err.Error(), "trivet head list") {
		t.Errorf("before all heads have the release: %v", err)
	}
	wiping := &trivet.Template{Meta: trivet.Meta{Name: "wipe"}, Spec: trivet.TemplateSpec{Actions: []trivet.Action{
		{Name: "wipe", Use: "wipe", With: map[string]any{"mode": "erase"}}}}}
	templates := client.Of[trivet.Template](operator)
	if _, err := templates.Create(ctx, wiping); !errors.Is(err, trivet.ErrInvalid) {
		t.Errorf("a template with an action that not all heads know: %v", err)
	}
	put(h, h.fleet.Sites, &trivet.Site{Meta: trivet.Meta{Name: trivet.SiteName},
		Status: trivet.SiteStatus{ClusterVersion: trivet.CurrentRelease}})
	if _, err := templates.Create(ctx, wiping); err != nil {
		t.Error(err)
	}
	for name, c := range map[string]struct {
		machine string
		req     trivet.ReleaseRequest
		want    error
	}{
		"an unknown mode":      {"m1", trivet.ReleaseRequest{Mode: "burn"}, trivet.ErrInvalid},
		"another's machine":    {"m1", trivet.ReleaseRequest{Provision: "p"}, trivet.ErrConflict},
		"an unknown machine":   {"none", trivet.ReleaseRequest{}, trivet.ErrNotFound},
		"no name of a machine": {"m/1", trivet.ReleaseRequest{}, trivet.ErrInvalid},
	} {
		if err := operator.Release(ctx, c.machine, c.req); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	if err := operator.Release(ctx, "m1", trivet.ReleaseRequest{Mode: trivet.ReleaseKeepData}); err != nil {
		t.Fatal(err)
	}
	got, err := client.Of[trivet.Machine](operator).Get(ctx, "m1")
	if err != nil || got.Status.State != trivet.MachineReleasing || got.Status.HoldsData != "unknown" ||
		got.Status.Intent == nil || got.Status.Intent.Want != "off" {
		t.Errorf("%+v, %v", got, err)
	}
	if log := h.audit(client.AuditOptions{}); !slices.ContainsFunc(log, func(line string) bool {
		return strings.HasPrefix(line, "op release Machine/m1 ok ")
	}) {
		t.Errorf("the audit log is %q", log)
	}
}
