package api_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

// Earlier heads cannot write a machine whose console is collected by Redfish, so it is refused until all have this
// release.
func TestRedfishConsoleNeedsRelease(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	put(h, h.fleet.Secrets, &trivet.Secret{Meta: trivet.Meta{Project: "default", Name: "bmc"},
		Spec: trivet.SecretSpec{Data: map[string]string{"user": "u", "password": "p"}, Addresses: []netip.Prefix{netip.MustParsePrefix("10.0.8.0/24")}}})
	machines := client.Of[trivet.Machine](h.client(h.account("op", "operator")))
	m := machine("m1", "52:54:00:00:00:01")
	m.Spec.BMC = &trivet.BMC{Protocol: "redfish", Address: "10.0.8.1", Secret: "bmc", Console: true}
	if _, err := machines.Create(t.Context(), m); err == nil || !strings.Contains(err.Error(), "trivet head list") {
		t.Errorf("before all heads have the release: %v", err)
	}
	put(h, h.fleet.Sites, &trivet.Site{Meta: trivet.Meta{Name: trivet.SiteName},
		Status: trivet.SiteStatus{ClusterVersion: trivet.CurrentRelease}})
	if _, err := machines.Create(t.Context(), m); err != nil {
		t.Error(err)
	}
}
