package api_test

import (
	"net/netip"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

// What an earlier release accepted can be changed in other fields, applied again as it is, renamed and deleted.
func TestRecordsOfEarlierReleases(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	ctx := t.Context()
	c := h.client(h.admin)
	put(h, h.fleet.Sites, &trivet.Site{Meta: trivet.Meta{Name: trivet.SiteName},
		Status: trivet.SiteStatus{ClusterVersion: trivet.CurrentRelease}})
	put(h, h.fleet.Networks, &trivet.Network{Meta: trivet.Meta{Name: "lan"}, Spec: trivet.NetworkSpec{
		CIDR: netip.MustParsePrefix("10.0.0.0/24"), Gateway: netip.MustParseAddr("10.0.0.20"),
		DNS:    []netip.Addr{netip.MustParseAddr("0.0.0.0")},
		Ranges: []trivet.Range{{From: netip.MustParseAddr("10.0.0.10"), To: netip.MustParseAddr("10.0.0.99")}}}})
	put(h, h.fleet.Secrets, &trivet.Secret{Meta: trivet.Meta{Project: "default", Name: "empty"}})
	put(h, h.fleet.Secrets, &trivet.Secret{Meta: trivet.Meta{Project: "default", Name: "token"},
		Spec: trivet.SecretSpec{Data: map[string]string{"token": "t"}}})
	put(h, h.fleet.Templates, &trivet.Template{Meta: trivet.Meta{Project: "default", Name: "t"},
		Spec: trivet.TemplateSpec{Actions: []trivet.Action{{Name: "a", Use: "noop"}}}})
	put(h, h.fleet.Provisions, &trivet.Provision{Meta: trivet.Meta{Project: "default", Name: "p"},
		Spec: trivet.ProvisionSpec{Template: "t", Machine: "gone"}, Status: trivet.ProvisionStatus{State: trivet.ProvisionPending}})
	m := machine("old", macA)
	m.Labels = map[string]string{"note": "a\tb"}
	m.Spec.Rack, m.Spec.NICs[0].Address = "r\x1b1", netip.MustParseAddr("10.77.0.9")
	m.Spec.BMC = &trivet.BMC{Protocol: "ipmi", Address: "10.0.8.300", Secret: "token"}
	m.Status.State = trivet.MachineAvailable
	put(h, h.fleet.Machines, m)
	put(h, h.fleet.Notifiers, &trivet.Notifier{Meta: trivet.Meta{Name: "hook"},
		Spec: trivet.NotifierSpec{Webhook: &trivet.Webhook{URL: "https://10.0.8.999/x", Secret: "token"}}})

	for _, c := range []struct {
		kind, name, patch string
		spec              string
	}{
		{"Network", "lan", `{"labels":{"a":"b"}}`, `{"spec":{"domain":"lab.example.org"}}`},
		{"Secret", "empty", `{"labels":{"a":"b"}}`, `{"spec":{"addresses":["10.0.8.0/24"]}}`},
		{"Secret", "token", `{"labels":{"a":"b"}}`, `{"spec":{"addresses":["10.0.8.0/24"]}}`},
		{"Provision", "p", `{"labels":{"a":"b"}}`, `{"spec":{"ifNoMachine":"fail"}}`},
		{"Machine", "old", `{"labels":{"a":"b"}}`, `{"spec":{"cordoned":true}}`},
		{"Machine", "old", `{"spec":{"disk":{"model":"x"}}}`, `{"spec":{"bmc":{"console":true}}}`},
		{"Notifier", "hook", `{"labels":{"a":"b"}}`, `{"spec":{"disabled":true}}`},
	} {
		info, err := trivet.LookupKind(c.kind)
		if err != nil {
			t.Fatal(err)
		}
		kind := h.client(h.admin).Kind(info)
		if info.Scope == trivet.ScopeProject {
			kind = kind.In("default")
		}
		for _, patch := range []string{c.patch, c.spec} {
			if _, err := kind.Patch(ctx, c.name, []byte(patch), 0); err != nil {
				t.Errorf("%s %s: %s: %v", c.kind, c.name, patch, err)
			}
		}
	}
	if err := c.Rename(ctx, "old", trivet.RenameRequest{Name: "new"}); err != nil {
		t.Error(err)
	}
	if err := client.Of[trivet.Network](c).Delete(ctx, "lan"); err != nil {
		t.Error(err)
	}
	if err := client.Of[trivet.Machine](c).Delete(ctx, "new"); err != nil {
		t.Error(err)
	}
}
