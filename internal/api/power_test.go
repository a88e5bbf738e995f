package api_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

// readPower is the BMC of all machines in tests: that of the machine "broken" refuses the head's password.
func readPower(_ context.Context, m *trivet.Machine) (string, error) {
	if m.Name == "broken" {
		return "", fmt.Errorf("log in: %w", trivet.ErrUnauthenticated)
	}
	return "on", nil
}

func TestPower(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	ctx := t.Context()
	operator := h.client(h.account("op", "operator"))
	for i, name := range []string{"m1", "broken", "bare"} {
		m := machine(name, fmt.Sprintf("52:54:00:00:00:0%d", i))
		if name != "bare" {
			m.Spec.BMC = &trivet.BMC{Protocol: "redfish", Address: "10.0.8.1", Secret: "bmc"}
		}
		m.Status.State = trivet.MachineAvailable
		put(h, h.fleet.Machines, m)
	}
	if err := operator.RequestPower(ctx, "m1", trivet.PowerRequest{Want: trivet.PowerCycle}); err != nil {
		t.Fatal(err)
	}
	m, err := client.Of[trivet.Machine](operator).Get(ctx, "m1")
	if err != nil || m.Status.Intent == nil || m.Status.Intent.Want != "cycle" {
		t.Errorf("%+v, %v", m, err)
	}
	if err := operator.RequestPower(ctx, "m1", trivet.PowerRequest{Want: "toggle"}); !errors.Is(err,
		trivet.ErrInvalid) {
		t.Errorf("toggle: %v", err)
	}
	const line = "op power Machine/m1 ok status.events,status.intent"
	if log := h.audit(client.AuditOptions{}); !slices.Contains(log, line) {
		t.Errorf("the audit log is %q; want %q", log, line)
	}

	if state, err := operator.Power(ctx, "m1"); err != nil || state.Power != "on" {
		t.Errorf("%+v, %v", state, err)
	}
	for name, want := range map[string]string{
		"broken": "BMC 10.0.8.1: log in: unauthenticated", "bare": "it has no BMC",
	} {
		if _, err := operator.Power(ctx, name); !errors.Is(err, trivet.ErrConflict) ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := operator.Power(ctx, "none"); !errors.Is(err, trivet.ErrNotFound) {
		t.Errorf("%v", err)
	}
}

// What a BMC reports to an operator is recorded, and why it does not, for those who look later.
func TestPowerIsRecorded(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	put(h, h.fleet.Sites, &trivet.Site{Meta: trivet.Meta{Name: trivet.SiteName},
		Status: trivet.SiteStatus{ClusterVersion: trivet.CurrentRelease}})
	operator := h.client(h.account("op", "operator"))
	for i, name := range []string{"m1", "broken"} {
		m := machine(name, fmt.Sprintf("52:54:00:00:00:0%d", i))
		m.Spec.BMC = &trivet.BMC{Protocol: "redfish", Address: fmt.Sprint("10.0.8.", i), Secret: "bmc"}
		put(h, h.fleet.Machines, m)
		_, failed := operator.Power(t.Context(), name)
		if (failed != nil) != (name == "broken") {
			t.Errorf("%s: %v", name, failed)
		}
	}
	if m := must(h.fleet.Machines.Get("m1"))(t); m.Status.Power != "on" || m.Status.PowerError != nil {
		t.Errorf("%+v", m.Status)
	}
	m := must(h.fleet.Machines.Get("broken"))(t)
	if e := m.Status.PowerError; e == nil || e.Cause != "BMC 10.0.8.1: log in: unauthenticated" || e.Since.IsZero() {
		t.Errorf("%+v", e)
	}
	m = must(h.fleet.Machines.Get("m1"))(t)
	m.Status.Power = "off"
	put(h, h.fleet.Machines, m)
	h.refuse.Store(&trivet.ErrUnavailable) // the caller gets what the BMC reports all the same
	if state, err := operator.Power(t.Context(), "m1"); err != nil || state.Power != "on" {
		t.Errorf("%+v, %v", state, err)
	}
}
