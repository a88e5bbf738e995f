package trivet_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
)

func TestEveryKindCreatesItself(t *testing.T) {
	seen := map[string]bool{}
	for _, k := range trivet.Kinds {
		r := k.New()
		if got := trivet.KindOf(r); got != k.Kind {
			t.Errorf("%s makes a %s", k.Kind, got)
		}
		for _, name := range []string{k.Plural, k.Short, strings.ToLower(string(k.Kind))} {
			if name != "" && seen[name] {
				t.Errorf("the name %q is used twice", name)
			}
			seen[name] = true
		}
		if k.Scope != trivet.ScopeOf(k.Kind) || k.Scope == "" || k.Reader == "" || k.Writer == "" {
			t.Errorf("%s: scope %q, reader %q, writer %q", k.Kind, k.Scope, k.Reader, k.Writer)
		}
		if err := r.Validate(); !errors.Is(err, trivet.ErrInvalid) {
			t.Errorf("an empty %s: %v, want invalid", k.Kind, err)
		}
		if got, err := trivet.LookupKind(k.Plural); err != nil || got.Kind != k.Kind {
			t.Errorf("lookup %s: %s, %v", k.Plural, got.Kind, err)
		}
	}
}

func TestEmptyStatusIsNotWritten(t *testing.T) {
	text, err := json.Marshal(&trivet.Machine{Meta: trivet.Meta{Kind: "Machine", Name: "m1"}})
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"kind":"Machine","name":"m1","spec":{}}`; string(text) != want {
		t.Errorf("got  %s\nwant %s", text, want)
	}
}

func TestValidateName(t *testing.T) {
	for name, ok := range map[string]bool{
		"m1": true, "10.0.0.7": true, "52:54:00:12:34:56": true, "fd00::1": true, "a-b.c": true,
		"": false, "A": false, "-a": false, "a-": false, "a/b": false, "..": false, "a..b": false, "a b": false,
		"a\x00b": false, "é": false, strings.Repeat("a", trivet.MaxName+1): false,
	} {
		if err := trivet.ValidateName(name); (err == nil) != ok {
			t.Errorf("ValidateName(%q) = %v, want ok %v", name, err, ok)
		}
	}
}

func TestDuration(t *testing.T) {
	var d trivet.Duration
	if err := json.Unmarshal([]byte(`"1m30s"`), &d); err != nil || d.D().Seconds() != 90 {
		t.Errorf("got %v, %v", d, err)
	}
	for _, bad := range []string{`"-1s"`, `"5"`, `"x"`} {
		if err := json.Unmarshal([]byte(bad), &d); err == nil {
			t.Errorf("%s was taken", bad)
		}
	}
}

// What a head reports of another one whose clock is behind can be read: trivet status needs it.
func TestClockBehind(t *testing.T) {
	want := trivet.HeadFacts{Name: "head1", ClockAhead: trivet.SignedDuration(-1500 * time.Millisecond)}
	text, err := json.Marshal(want)
	var got trivet.HeadFacts
	if err := errors.Join(err, json.Unmarshal(text, &got)); err != nil || got.ClockAhead != want.ClockAhead ||
		!strings.Contains(string(text), `"clockAhead":"-1.5s"`) {
		t.Errorf("%s: %+v, %v", text, got, err)
	}
}

func TestValidateNamesTheField(t *testing.T) {
	tpl := &trivet.Template{Meta: trivet.Meta{Name: "t"}, Spec: trivet.TemplateSpec{Actions: []trivet.Action{
		{Name: "a", Use: "noop"}, {Name: "a", Use: "magic", Retries: -1}, {Name: "hello", Use: "noop"},
	}}}
	err := tpl.Validate()
	for _, want := range []string{"spec.actions[1].name", "spec.actions[1].use", "spec.actions[1].retries",
		"spec.actions[2].name"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %s", err, want)
		}
	}
}

// A range without one of its ends names that end.
func TestRangeNeedsItsEnds(t *testing.T) {
	n := &trivet.Network{Meta: trivet.Meta{Name: "lan"}, Spec: trivet.NetworkSpec{
		CIDR:   netip.MustParsePrefix("10.0.0.0/24"),
		Ranges: []trivet.Range{{}, {From: netip.MustParseAddr("10.0.0.9")}}}}
	const want = "spec.ranges[0].from is missing; write the first address of the range\n" +
		"spec.ranges[0].to is missing; write the last address of the range\n" +
		"spec.ranges[1].to is missing; write the last address of the range"
	if err := n.Validate(); err == nil || err.Error() != want {
		t.Errorf("%v; want %s", err, want)
	}
}

func TestCanonicalMAC(t *testing.T) {
	for in, want := range map[string]string{
		"52:54:00:12:34:56": "52:54:00:12:34:56", "52-54-00-AB-CD-EF": "52:54:00:ab:cd:ef",
		"": "", "52:54:00:12:34": "", "5:254:00:12:34:56": "", "53:54:00:12:34:56": "", "52:54:00:12:34:5g": "",
		"52:54:00:12:34:56:78:9a": "", "::52:54:00:12:34:56": "",
	} {
		if got, err := trivet.CanonicalMAC(in); got != want || (err == nil) != (want != "") {
			t.Errorf("CanonicalMAC(%q) = %q, %v; want %q", in, got, err, want)
		}
	}
}

// Annotations are text of bounded length. All that is wrong is reported, in the same order.
func TestValidateAnnotations(t *testing.T) {
	many := map[string]string{}
	for i := range trivet.MaxAnnotations {
		many[fmt.Sprint("k", i)] = ""
	}
	text := strings.Repeat("x", trivet.MaxAnnotation)
	for name, c := range map[string]struct {
		annotations map[string]string
		want        []string
	}{
		"none":        {nil, nil},
		"free text":   {map[string]string{"a.b/c": "fan 3, is = loud\n\tsee ärger 🔧"}, nil},
		"many":        {many, nil},
		"long":        {map[string]string{"a": text, "b": text, "c": text}, nil},
		"too long":    {map[string]string{"a": text + "x"}, []string{"annotations.a has 4097 bytes; at most 4096"}},
		"wrong keys":  {map[string]string{"a b": "", "": ""}, []string{"annotations. has a wrong key", "annotations.a b has"}},
		"escapes":     {map[string]string{"a": "\x1b[31m"}, []string{"annotations.a must be UTF-8 text"}},
		"returns":     {map[string]string{"a": "a\r\n"}, []string{"annotations.a must be UTF-8 text"}},
		"other bytes": {map[string]string{"a": "\xff"}, []string{"annotations.a must be UTF-8 text"}},
		"too much": {map[string]string{"a": text, "b": text, "c": text, "d": text},
			[]string{"annotations has 16388 bytes of keys and values; at most 16384"}},
	} {
		err := trivet.ValidateAnnotations(c.annotations)
		if (err == nil) != (c.want == nil) {
			t.Errorf("%s: %v", name, err)
		}
		for _, want := range c.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", name, err, want)
			}
		}
	}
	many["one-more"] = ""
	if err := trivet.ValidateAnnotations(many); err == nil || !strings.Contains(err.Error(), "has 65 entries; at most 64") {
		t.Errorf("too many: %v", err)
	}
}

// Annotations of kinds that existed before them are refused until all heads know them.
func TestAnnotationsAreGated(t *testing.T) {
	for _, k := range trivet.Kinds {
		gated := k.FieldsSince["annotations"] == trivet.AnnotationsRelease
		if known := k.Since.Compare(trivet.AnnotationsRelease) >= 0; gated == (known || k.ReadOnly) {
			t.Errorf("%s: gated %t, added in %q, read-only %t", k.Kind, gated, k.Since, k.ReadOnly)
		}
	}
}
