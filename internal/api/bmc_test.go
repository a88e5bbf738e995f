package api_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

// An operator may point a machine's BMC only at addresses that an admin has put into the secret, and may not change
// those.
func TestBMCIsWhereItsSecretMayBeSent(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	ctx := t.Context()
	secrets := client.Of[trivet.Secret](h.client(h.admin))
	for name, addresses := range map[string][]netip.Prefix{
		"bmc": {netip.MustParsePrefix("10.0.8.0/24"), netip.MustParsePrefix("fd00:8::/64")}, "unused": nil,
	} {
		_, err := secrets.Create(ctx, &trivet.Secret{Meta: trivet.Meta{Project: "default", Name: name},
			Spec: trivet.SecretSpec{
				Data: map[string]string{"user": "root", "password": "calvin"}, Addresses: addresses}})
		if err != nil {
			t.Fatal(err)
		}
	}
	operator := h.client(h.account("op", "operator"))
	machines := client.Of[trivet.Machine](operator)
	bmc := func(secret, address string) *trivet.Machine {
		m := machine("m1", macA)
		m.Spec.BMC = &trivet.BMC{Protocol: "redfish", Address: address, Secret: secret}
		return m
	}
	for what, m := range map[string]*trivet.Machine{
		"another address":        bmc("bmc", "10.0.9.1"),
		"another address, URL":   bmc("bmc", "https://10.0.9.1:8443/redfish/v1/Systems/1"),
		"another IPv6 address":   bmc("bmc", "[fd00:9::1]:443"),
		"mapped IPv4 address":    bmc("bmc", "[::ffff:10.0.9.1]:443"),
		"another address, path":  bmc("bmc", "10.0.9.1/redfish/v1/Systems/1"),
		"a secret for no host":   bmc("unused", "10.0.8.1"),
		"a secret without a BMC": bmc("unused", "bmc.example.org"),
		"no such secret":         bmc("none", "10.0.8.1"),
	} {
		_, err := machines.Create(ctx, m)
		if !errors.Is(err, trivet.ErrInvalid) || !strings.Contains(err.Error(), "spec.addresses") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := machines.Create(ctx, bmc("bmc", "HTTP://10.0.8.7")); !errors.Is(err, trivet.ErrInvalid) ||
		!strings.Contains(err.Error(), "has no TLS") {
		t.Errorf("without TLS: %v", err)
	}
	m, err := machines.Create(ctx, bmc("bmc", "https://10.0.8.7/redfish/v1/Systems/1"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := machines.Patch(ctx, "m1", []byte(`{"spec":{"bmc":{"address":"10.0.9.1"}}}`), 0); !errors.Is(err,
		trivet.ErrInvalid) {
		t.Errorf("a patch to another address: %v", err)
	}
	patch := []byte(`{"spec":{"addresses":["10.0.0.0/8"],"insecure":true}}`)
	if _, err := client.Of[trivet.Secret](operator).Patch(ctx, "bmc", patch, 0); !errors.Is(err, trivet.ErrForbidden) {
		t.Errorf("an operator extends the addresses of a secret: %v", err)
	}
	if _, err := secrets.Patch(ctx, "bmc", []byte(`{"spec":{"addresses":["10.0.9.0/24"]}}`), 0); err != nil {
		t.Fatal(err)
	}
	m.Labels = map[string]string{"rack": "a1"}
	if _, err := machines.Update(ctx, m); err != nil {
		t.Errorf("a label of a machine whose BMC is not permitted any more: %v", err)
	}
}

// A machine does not get the BMC of another one, which its power commands would power off. Machines that have one BMC
// since before can be changed otherwise, and out of it.
func TestBMCIsOfOneMachine(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	ctx := t.Context()
	c := h.client(h.admin)
	if _, err := client.Of[trivet.Secret](c).Create(ctx, &trivet.Secret{Meta: trivet.Meta{Project: "default", Name: "bmc"},
		Spec: trivet.SecretSpec{Data: map[string]string{"user": "root", "password": "calvin"},
			Addresses: []netip.Prefix{netip.MustParsePrefix("10.0.8.0/24")}}}); err != nil {
		t.Fatal(err)
	}
	machines := client.Of[trivet.Machine](c)
	with := func(name, mac, protocol, address string) *trivet.Machine {
		m := machine(name, mac)
		m.Spec.BMC = &trivet.BMC{Protocol: protocol, Address: address, Secret: "bmc"}
		return m
	}
	mustBeTaken := func(what string, err error, by string) {
		t.Helper()
		if !errors.Is(err, trivet.ErrExists) || !strings.Contains(err.Error(), "is the BMC of machine "+by) {
			t.Errorf("%s: %v", what, err)
		}
	}
	create := func(m *trivet.Machine) {
		t.Helper()
		if _, err := machines.Create(ctx, m); err != nil {
			t.Fatal(err)
		}
	}
	create(with("m1", macA, "ipmi", "10.0.8.1"))
	create(with("blade1", "52:54:00:00:08:01", "redfish", "10.0.8.2/redfish/v1/Systems/1"))
	create(with("blade2", "52:54:00:00:08:02", "redfish", "10.0.8.2/redfish/v1/Systems/2"))
	_, err := machines.Create(ctx, with("m2", macB, "ipmi", "10.0.8.1:623"))
	mustBeTaken("create", err, "m1")
	_, err = machines.Create(ctx, with("m2", macB, "redfish", "https://10.0.8.2"))
	mustBeTaken("all systems", err, "blade1")
	if !strings.Contains(err.Error(), "https://10.0.8.2/redfish/v1/Systems/ID") ||
		!strings.Contains(err.Error(), "trivet patch machine blade1") {
		t.Errorf("it does not say what to write: %v", err)
	}
	info, _ := trivet.LookupKind("Machine")
	_, err = c.Kind(info).DryRun(true).Create(ctx, with("m2", macB, "redfish", "10.0.8.1"))
	mustBeTaken("a dry run, of another protocol", err, "m1")
	create(machine("m2", macB))
	_, err = machines.Patch(ctx, "m2", []byte(`{"spec":{"bmc":{"protocol":"ipmi","address":"10.0.8.1","secret":"bmc"}}}`), 0)
	mustBeTaken("patch", err, "m1")
	if _, err := machines.Patch(ctx, "m1", []byte(`{"spec":{"bmc":{"address":"10.0.8.1:623"}}}`), 0); err != nil {
		t.Errorf("its own BMC, written otherwise: %v", err)
	}

	put(h, h.fleet.Sites, &trivet.Site{Meta: trivet.Meta{Name: trivet.SiteName},
		Status: trivet.SiteStatus{ClusterVersion: trivet.CurrentRelease}})
	for i, name := range []string{"old1", "old2"} { // as earlier releases accepted them
		m := with(name, "52:54:00:00:09:0"+string(rune('0'+i)), "redfish", "10.0.8.9")
		m.Status.State = trivet.MachineAvailable
		put(h, h.fleet.Machines, m)
	}
	for _, patch := range []string{`{"spec":{"rack":"r2"}}`, `{"spec":{"bmc":{"console":true}}}`,
		`{"spec":{"bmc":{"address":"10.0.8.9/redfish/v1/Systems/2"}}}`, `{"spec":{"bmc":{"address":"10.0.8.10"}}}`} {
		if _, err := machines.Patch(ctx, "old2", []byte(patch), 0); err != nil {
			t.Errorf("%s: %v", patch, err)
		}
	}
	_, err = machines.Patch(ctx, "old2", []byte(`{"spec":{"bmc":{"address":"10.0.8.9"}}}`), 0)
	mustBeTaken("back", err, "old1")
	if err := c.Rename(ctx, "old1", trivet.RenameRequest{Name: "old3"}); err != nil {
		t.Fatal(err)
	}
	_, err = machines.Patch(ctx, "old2", []byte(`{"spec":{"bmc":{"address":"10.0.8.9"}}}`), 0)
	mustBeTaken("after a rename", err, "old3")
	if err := machines.Delete(ctx, "old3"); err != nil {
		t.Fatal(err)
	}
	if _, err := machines.Patch(ctx, "old2", []byte(`{"spec":{"bmc":{"address":"10.0.8.9"}}}`), 0); err != nil {
		t.Errorf("after the other one was deleted: %v", err)
	}
}
