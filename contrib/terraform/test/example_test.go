package test

import (
	"testing"

	"github.com/zclconf/go-cty/cty"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

const example = "../examples/main.tf"

// exampleVars are the variables of the example for a simulated machine on loopback.
var exampleVars = map[string]string{"cidr": "127.0.0.0/8", "first": "127.77.0.1", "last": "127.77.255.254",
	"mac": "52:54:00:00:00:01", "bmc_password": "example-password"}

// newExampleSite is a site with the machine of the example, which has no record yet.
func newExampleSite(t *testing.T) *site {
	t.Helper()
	s := newSite(t)
	s.prepare()
	return s
}

// The example is applied twice, changed, and destroyed.
func TestExample(t *testing.T) {
	t.Parallel()
	s := newExampleSite(t)
	s.attend(s.newMachine("m1", exampleVars["mac"], nil))
	m := s.newModule(example, exampleVars)
	expect := func(when, action string, except map[string]string) {
		t.Helper()
		for address, did := range m.apply() {
			if want, other := except[address]; did != action && !other || other && did != want {
				t.Errorf("%s: %s: %s", when, address, did)
			}
		}
	}
	expect("first", "create", nil)
	if got := m.output(t, "machine"); got != "m1" {
		t.Errorf("the output machine is %q", got)
	}
	if err := s.use(m.output(t, "token")); err != nil {
		t.Errorf("the token: %v", err)
	}
	expect("again", "none", nil)
	m.vars["hostname"] = cty.StringVal("other")
	expect("another host name", "none", map[string]string{"trivet_provision.web1": "replace"})
	if got := must[trivet.Provision](s, "default", "web1").Spec.Hostname; got != "other" {
		t.Errorf("the host name is %q", got)
	}
	m.destroy()
	for _, kind := range []string{"machine", "template", "provision", "network", "secret", "token"} {
		list, _, err := s.records(kind).RawList(t.Context(), client.ListOptions{})
		if want := map[string]int{"token": 1}[kind]; err != nil || len(list) != want {
			t.Errorf("%d records of kind %s after the destruction, want %d: %v", len(list), kind, want, err)
		}
	}
}
