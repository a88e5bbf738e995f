package provider

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
)

func kindOf(name string) *kind {
	for i := range kinds {
		if kinds[i].info.Kind == trivet.Kind(name) {
			return &kinds[i]
		}
	}
	panic("no kind " + name)
}

func object(t *testing.T, text string) map[string]any {
	t.Helper()
	var v map[string]any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// A spec is the fields that a text sets, with the values that a head writes.
func TestParseSpec(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ kind, text, want string }{
		{"Machine", "rack: r1\ncordoned: false\n", `{"rack":"r1","cordoned":null}`},
		{"Machine", `{"rack":"r1","cordoned":true}`, `{"rack":"r1","cordoned":true}`},
		{"Machine", "{}", "{}"},
		{"Machine", "nics: []", `{"nics":null}`},
		{"Machine", "nics: [{mac: 'a'}]\ndisk: {}", `{"nics":[{"mac":"a"}],"disk":null}`},
		{"Network", "lease: 600s\ncidr: 10.0.0.0/24", `{"lease":"10m0s","cidr":"10.0.0.0/24"}`},
		{"Provision", "alternatives: 0", `{"alternatives":0}`},
		{"Template", "actions: [{name: a, use: noop, with: {n: 1.5, b: false, l: [1]}, timeout: 90s}]",
			`{"actions":[{"name":"a","use":"noop","with":{"n":1.5,"b":false,"l":[1]},"timeout":"1m30s"}]}`},
	} {
		got, err := parseSpec(kindOf(c.kind), c.text)
		if err != nil || !isEqual(got, object(t, c.want)) {
			t.Errorf("%s %q: %s, %v; want %s", c.kind, c.text, specText(got), err, c.want)
		}
	}
	for text, want := range map[string]string{
		"a: 1\na: 2": "not YAML", "- a": "must be an object", "lease: x": "not a duration",
		"dns: [{a: b}]": "spec", "cidr: {a: b}": "cannot unmarshal",
		"ranges: [{form: x}]":                   "spec.ranges[0].form is not known",
		strings.Repeat("#", trivet.MaxRecord+1): "too large",
	} {
		if got, err := parseSpec(kindOf("Network"), text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %s, %v; want %q", text, specText(got), err, want)
		}
	}
}

// What a record has of the fields that are set decides whether it differs.
func TestRestrict(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		set, has string
		same     bool
	}{
		{`{}`, `{"a":1}`, true},
		{`{"a":1}`, `{"a":1,"b":2}`, true},
		{`{"a":1}`, `{"b":2}`, false},
		{`{"a":null}`, `{}`, true},
		{`{"a":null}`, `{"a":true}`, false},
		{`{"a":null}`, `{"a":""}`, true},
		{`{"a":0}`, `{}`, false},
		{`{"a":{"b":1}}`, `{"a":{"b":1,"c":2}}`, true},
		{`{"a":{"b":1}}`, `{"a":{"b":2,"c":2}}`, false},
		{`{"a":{"b":1}}`, `{"a":5}`, false},
		{`{"a":{"b":1}}`, `{}`, false},
		{`{"l":[{"a":1}]}`, `{"l":[{"a":1,"b":2}]}`, true},
		{`{"l":[{"a":1}]}`, `{"l":[{"a":1},{"a":1}]}`, false},
		{`{"l":[1,2]}`, `{"l":[2,1]}`, false},
		{`{"l":[1]}`, `{}`, false},
	} {
		set := object(t, c.set)
		if got := restrictObject(object(t, c.has), set); isEqual(got, set) != c.same {
			t.Errorf("%s of %s: %s; want the same: %v", c.set, c.has, specText(got), c.same)
		}
	}
}

// A change leaves alone what no configuration has set.
func TestOverlay(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ has, former, next, want string }{
		{`{}`, `{}`, `{"a":1}`, `{"a":1}`},
		{`{"a":1,"z":9}`, `{"a":1}`, `{"a":2}`, `{"a":2,"z":9}`},
		{`{"a":1,"b":2,"z":9}`, `{"a":1,"b":2}`, `{"a":1}`, `{"a":1,"z":9}`},
		{`{"a":true}`, `{"a":true}`, `{"a":null}`, `{}`},
		{`{"o":{"a":1,"z":9}}`, `{"o":{"a":1}}`, `{"o":{"b":2}}`, `{"o":{"b":2,"z":9}}`},
		{`{"l":[{"m":1,"z":9}]}`, `{"l":[{"m":1}]}`, `{"l":[{"m":1}],"x":1}`, `{"l":[{"m":1,"z":9}],"x":1}`},
		{`{"l":[{"m":1,"z":9},{"m":2}]}`, `{"l":[{"m":1},{"m":2}]}`, `{"l":[{"m":2},{"m":1}]}`,
			`{"l":[{"m":2},{"m":1}]}`},
		{`{"l":[{"m":7,"z":9}]}`, `{"l":[{"m":1}]}`, `{"l":[{"m":1}]}`, `{"l":[{"m":1}]}`},
		{`{}`, `{}`, `{"l":[{"m":1,"n":null}]}`, `{"l":[{"m":1}]}`},
	} {
		got := overlay(object(t, c.has), object(t, c.former), object(t, c.next))
		if !isEqual(got, object(t, c.want)) {
			t.Errorf("%s, former %s, next %s: %v; want %s", c.has, c.former, c.next, got, c.want)
		}
	}
}

// Hints are shown once, and text from machines without control characters.
func TestProblem(t *testing.T) {
	t.Parallel()
	p := &trivet.Problem{Code: "conflict", Message: "update machine m1: \x1b[31mred", Hint: "read it again"}
	d := problem("update machine m1", p)
	if d.Summary() != "Cannot update machine m1" || strings.Count(d.Detail(), "read it again") != 1 ||
		!strings.Contains(d.Detail(), "Hint: read it again") || strings.Contains(d.Detail(), "\x1b") {
		t.Errorf("%q: %q", d.Summary(), d.Detail())
	}
	internal := problem("x", &trivet.Problem{Code: trivet.CodeInternal, Message: "m", RequestID: "r-7"})
	if !strings.Contains(internal.Detail(), "request r-7 in the head's log") {
		t.Errorf("%q", internal.Detail())
	}
}
