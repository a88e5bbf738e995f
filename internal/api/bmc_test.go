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
