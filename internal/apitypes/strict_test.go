package apitypes

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trivet-project/trivet"
)

func TestDecodeStrict(t *testing.T) {
	const table = `
{"name":"t","spec":{"actions":[{"name":"a","use":"noop","timeout":"5m","with":{"any":[1,{"x":null}]}}]}} =>
{"name":"t","spec":{"action":[]}} => spec.action is not known; did you mean actions?
{"name":"t","Spec":{}} => Spec is not known; did you mean spec?
{"name":"t","spec":{"actions":[{"name":"a"},{"name":"b","timeout":5}]}} => spec.actions[1].timeout must be a text, not a number; put it in quotes
{"name":"t","spec":{"actions":[{"timeout":"5 minutes"}]}} => spec.actions[0].timeout "5 minutes" is not a duration; write 30s, 5m or 1h30m
{"name":"t","spec":{"actions":[{"retries":1.5}]}} => spec.actions[0].retries 1.5 must be a whole number that fits
{"name":"t","spec":{"actions":[{"retries":99999999999999999999}]}} => spec.actions[0].retries 99999999999999999999 must be a whole number that fits
{"name":"t","spec":{"actions":{}}} => spec.actions must be a list, not an object
{"name":"t","labels":{"a":1}} => labels.a must be a text, not a number; put it in quotes
{"name":"t","created":"yesterday"} => created time "yesterday" as "2006-01-02T15:04:05Z07:00": cannot parse "yesterday" as "2006"
{"name":"t","name":"u"} => name appears twice
{"name":"t"} {"name":"u"} => invalid: more than one JSON value
{"name":"t" => invalid: not JSON, at byte 11: unexpected EOF
[] => record must be an object, not a list
{"zzzzz":1,"name":2} => name must be a text, not a number; put it in quotes|zzzzz is not known; the known ones are annotations, created, creator, generation, kind, labels, managed, name, project, revision, spec, uid`
	for line := range strings.Lines(strings.TrimSpace(table)) {
		in, want, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " =>")
		want = strings.ReplaceAll(strings.TrimSpace(want), "|", "\n")
		err := DecodeStrict([]byte(in), new(trivet.Template))
		got := ""
		if err != nil {
			got = err.Error()
			if !errors.Is(err, trivet.ErrInvalid) {
				t.Errorf("%s: not ErrInvalid", in)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s:\n%s", in, diff)
		}
	}
}

// An edit of a record of a newer release keeps its properties, wherever they move in a list, and adds no unknown ones.
func TestCheckEdit(t *testing.T) {
	type object = map[string]any
	actions := func(names ...string) (list []any) {
		for _, name := range names {
			list = append(list, object{"name": name, "later": "x"})
		}
		return list
	}
	template := func(actions []any) object { return object{"spec": object{"actions": actions}} }
	check := func(before, after any) string {
		err := CheckEdit(before, after, reflect.TypeFor[trivet.Template]())
		return fmt.Sprint(err)
	}
	many := actions(strings.Split(strings.Repeat("a", 2*maxFields), "")...)
	moved := append([]any{object{"name": "first"}}, many...)
	if got := check(template(many), template(moved)); got != "<nil>" {
		t.Error(got)
	}
	moved[0] = object{"nam": "first"}
	if got := check(template(many), template(moved)); !strings.HasPrefix(got, "spec.actions[0].nam is not known") ||
		strings.Contains(got, "later") {
		t.Error(got)
	}
	if got := check(template(nil), template(many)); strings.Count(got, "later is not known") != maxFields {
		t.Error(got)
	}
}

// Bytes are base64 in JSON.
func TestDecodeStrictBytes(t *testing.T) {
	var in trivet.ConsoleInput
	if err := DecodeStrict([]byte(`{"session":"s","text":"bHM="}`), &in); err != nil || string(in.Text) != "ls" {
		t.Errorf("%q, %v", in.Text, err)
	}
	for _, text := range []string{`{"text":[1]}`, `{"text":"!"}`} {
		if err := DecodeStrict([]byte(text), &in); !errors.Is(err, trivet.ErrInvalid) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// What costs most is the suggestion for a property that is not known: there is none beyond what is reported.
func TestSuggestionsAreBounded(t *testing.T) {
	cost := func(properties int) float64 {
		record := map[string]any{}
		for i := range properties {
			record[fmt.Sprint("unknown", i)] = "x"
		}
		return testing.AllocsPerRun(1, func() {
			if Check(record, reflect.TypeFor[trivet.Template]()) == nil {
				t.Error("unknown properties are accepted")
			}
		})
	}
	if few, many := cost(maxFields), cost(100*maxFields); many > 2*few {
		t.Errorf("%.0f allocations for %d unknown properties, %.0f for a hundred times as many", few, maxFields, many)
	}
}

func TestParseBoundsDepth(t *testing.T) {
	if _, err := Parse([]byte(strings.Repeat("[", 100000))); !errors.Is(err, trivet.ErrInvalid) {
		t.Errorf("got %v", err)
	}
}

// Whatever DecodeStrict accepts, json.Unmarshal decodes to the same, and no written property is lost.
func FuzzDecodeStrict(f *testing.F) {
	f.Add(`{"kind":"Machine","name":"m","spec":{"nics":[{"mac":"52:54:00:00:00:01","address":"10.0.0.1"}],"cordoned":true}}`)
	f.Add(`{"status":{"power":"on","inventory":{"cores":3,"disks":[{"bytes":1e3}]},"activated":"2026-01-01T00:00:00Z"}}`)
	f.Add(`{"name":"\ud800","labels":{"a.b[0]":"x","":null}}`)
	f.Fuzz(func(t *testing.T, text string) {
		var strict, plain trivet.Machine
		if err := DecodeStrict([]byte(text), &strict); err != nil {
			if !errors.Is(err, trivet.ErrInvalid) {
				t.Fatalf("%q: %v is not ErrInvalid", text, err)
			}
			return
		}
		if err := json.Unmarshal([]byte(text), &plain); err != nil {
			t.Fatalf("%q: strict took what json refuses: %v", text, err)
		}
	})
}

// The examples of RFC 7386, appendix A, whose patch is an object.
func TestMergePatch(t *testing.T) {
	const table = `
{"a":"b"}          {"a":"c"}                  {"a":"c"}
{"a":"b"}          {"b":"c"}                  {"a":"b","b":"c"}
{"a":"b"}          {"a":null}                 {}
{"a":"b","b":"c"}  {"a":null}                 {"b":"c"}
{"a":["b"]}        {"a":"c"}                  {"a":"c"}
{"a":"c"}          {"a":["b"]}                {"a":["b"]}
{"a":{"b":"c"}}    {"a":{"b":"d","c":null}}   {"a":{"b":"d"}}
{"a":[{"b":"c"}]}  {"a":[1]}                  {"a":[1]}
{"e":null}         {"a":1}                    {"a":1,"e":null}
[1,2]              {"a":"b","c":null}         {"a":"b"}
{}                 {"a":{"bb":{"ccc":null}}}  {"a":{"bb":{}}}
{"n":12345678901234567890} {"a":1}            {"a":1,"n":12345678901234567890}`
	for line := range strings.Lines(strings.TrimSpace(table)) {
		f := strings.Fields(line)
		got, err := ApplyMergePatch([]byte(f[0]), []byte(f[1]))
		if err != nil || string(got) != f[2] {
			t.Errorf("%s + %s = %s, %v; want %s", f[0], f[1], got, err, f[2])
		}
	}
	for _, bad := range []string{`[]`, `1`, `null`, `{`, ``, `{"a":1,"a":2}`} {
		if _, err := ApplyMergePatch([]byte(`{}`), []byte(bad)); !errors.Is(err, trivet.ErrInvalid) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// One long name with a long list below it is refused before the paths of the values need their product of memory.
func TestLongNames(t *testing.T) {
	text := `{"` + strings.Repeat("k", 400_000) + `":[` + strings.Repeat(`"",`, 200_000) + `""]}`
	_, err := Parse([]byte(text))
	if !errors.Is(err, trivet.ErrInvalid) || len(err.Error()) > 4096 {
		t.Errorf("%d bytes: %.100q", len(err.Error()), err)
	}
}
