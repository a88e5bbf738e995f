package test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/trivet-project/trivet/internal/testhead"
)

const pin = "sha256:0000000000000000000000000000000000000000000000000000000000000000"

// A configuration of the provider that cannot work is refused with a text that says what to do.
func TestProviderConfigRefused(t *testing.T) {
	for _, name := range []string{"TRIVET_ENDPOINTS", "TRIVET_TRUST", "TRIVET_TOKEN", "TRIVET_CONTEXT"} {
		t.Setenv(name, "")
	}
	t.Setenv("TRIVET_CONFIG", filepath.Join(t.TempDir(), "absent.yaml"))
	urls := []string{"https://127.0.0.1:7480"}
	const secret = "trivet_abc_secretpart"
	for name, c := range map[string]struct {
		config object
		want   []string
	}{
		"nothing":         {object{}, []string{"config file", "trivet login", "in the provider block set server"}},
		"context":         {object{"context": "absent"}, []string{"config file", "trivet login"}},
		"server only":     {object{"server": urls}, []string{"trust (or TRIVET_TRUST)", "token (or TRIVET_TOKEN)"}},
		"no server":       {object{"trust": pin, "token": secret}, []string{"server (or TRIVET_ENDPOINTS)"}},
		"both":            {object{"context": "a", "token": secret}, []string{"context excludes"}},
		"wrong pin":       {object{"server": urls, "trust": "sha256:1", "token": secret}, []string{"64 lower-case hex"}},
		"no pin":          {object{"server": urls, "trust": "x", "token": secret}, []string{"neither pins"}},
		"wrong URL":       {object{"server": []string{"ftp://x"}, "trust": pin, "token": secret}, []string{"https"}},
		"unknown server":  {object{"server": unknown{}, "trust": pin}, []string{"server is not known yet", "-target"}},
		"unknown token":   {object{"server": urls, "token": unknown{}}, []string{"token is not known yet"}},
		"unknown context": {object{"context": unknown{}}, []string{"context is not known yet"}},
	} {
		core := newCore(t)
		text := core.configure(c.config)
		for _, want := range c.want {
			if !strings.Contains(text, want) {
				t.Errorf("%s: %q; want %q", name, text, want)
			}
		}
		if strings.Contains(core.log.String(), secret) {
			t.Errorf("%s: the token is in: %s", name, core.log)
		}
	}
}

// The provider finds the cluster as the CLI does, in the file and in the environment. The block has precedence.
func TestProviderConfig(t *testing.T) {
	h := testhead.NewHead(t, "head0")
	h.Up()
	c := h.Credential()
	t.Setenv("TRIVET_CONFIG", h.AdminFile())
	create := func(name string, config object) {
		t.Helper()
		on := configured(t, config)
		r := on.resource("trivet_machine")
		r.mustApply("create", object{"name": name, "spec": "rack: r1\n"})
		r.mustDestroy()
	}
	create("by-file", object{})
	t.Setenv("TRIVET_CONFIG", filepath.Join(t.TempDir(), "absent.yaml"))
	create("by-block", providerConfig(h))
	t.Setenv("TRIVET_TOKEN", c.Token)
	create("token-of-environment", object{"server": []string{h.API()}, "trust": c.Trust})
	t.Setenv("TRIVET_ENDPOINTS", h.API())
	t.Setenv("TRIVET_TRUST", c.Trust)
	create("rest-of-environment", object{"token": c.Token})
	create("by-environment", object{})

	t.Setenv("TRIVET_TOKEN", "trivet_aaaaaaaa_bbbbbbbbbbbbbbbbbbbb")
	for _, bad := range []struct {
		config object
		want   []string
	}{
		{object{}, []string{"unauthenticated", "check server, trust and token"}},
		{providerConfig(h).with("trust", pin), []string{"does not belong to the cluster", "check server, trust and token"}},
	} {
		on := configured(t, bad.config)
		_, text := on.resource("trivet_machine").apply(object{"name": "m1", "spec": "rack: r1\n"})
		for _, want := range bad.want {
			if !strings.Contains(text, want) {
				t.Errorf("%v: %q; want %q", bad.config, text, want)
			}
		}
		if strings.Contains(on.log.String(), "bbbbbbbb") || strings.Contains(on.log.String(), c.Token) {
			t.Error("the token is in a log")
		}
	}
}

// A wrong record is refused while it is planned, and by a head.
func TestRecordRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for _, c := range []struct {
		kind   string
		config object
		want   string
	}{
		{"machine", object{"name": "M1", "spec": "{}"}, "use a-z"},
		{"machine", object{"name": "m1", "spec": "rack: [1"}, "not YAML or JSON"},
		{"machine", object{"name": "m1", "spec": "[1]"}, "yamlencode({...})"},
		{"machine", object{"name": "m1", "spec": ""}, "must be an object"},
		{"machine", object{"name": "m1", "spec": "rac: r1"}, "spec.rac is not known; the fields here are arch, nics"},
		{"machine", object{"name": "m1", "spec": "Rack: r1"}, "spec.Rack is not known"},
		{"machine", object{"name": "m1", "spec": "nics: [{mac: x}]"}, "write 52:54:00:12:34:56"},
		{"machine", object{"name": "m1", "spec": "nics: [{mc: x}]"}, "spec.nics[0].mc is not known"},
		{"machine", object{"name": "m1", "spec": "rack: {a: b}"}, "cannot unmarshal object"},
		{"machine", object{"name": "m1", "spec": "{}", "labels": map[string]any{"a": nil}}, "is null"},
		{"template", object{"name": "t", "spec": "actions: []"}, "at least one action"},
		{"template", object{"name": "t", "project": "No", "spec": noop}, "project"},
		{"template", object{"name": "t", "spec": "actions: [{name: a, use: image}]"}, "image"},
		{"network", object{"name": "n", "spec": "cidr: 10.0.0.1/24"}, "write 10.0.0.0/24"},
		{"provision", object{"name": "p", "spec": "template: t"}, "set spec.machine"},
		{"provision", object{"name": "p", "spec": "{template: t, machine: m}"}, "template"},
		{"account", object{"name": "a", "spec": "role: king"}, "spec.role"},
	} {
		r := s.resource("trivet_" + c.kind)
		if _, text := r.apply(c.config); !strings.Contains(text, c.want) || r.exists() {
			t.Errorf("%s %v: %q; want %q", c.kind, c.config, text, c.want)
		}
	}
	r := s.resource("trivet_machine")
	p, text := r.plan(object{"name": "m1", "spec": unknown{}, "labels": unknown{}})
	if text != "" || p.action() != "create" {
		t.Errorf("what is not known yet: %s", describe(p, text))
	}
}
