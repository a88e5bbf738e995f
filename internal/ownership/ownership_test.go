package ownership_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/apitypes"
	"github.com/trivet-project/trivet/internal/ownership"
)

// parse decodes a JSON object.
func parse(t testing.TB, text string) map[string]any {
	t.Helper()
	v, err := apitypes.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return v.(map[string]any)
}

// fields returns the fields of a machine that is applied.
func fields(t testing.TB, text string) []ownership.Field {
	t.Helper()
	var m trivet.Machine
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		t.Fatal(err)
	}
	record, err := json.Marshal(&m)
	if err != nil {
		t.Fatal(err)
	}
	return ownership.Fields(parse(t, text), parse(t, string(record)))
}

func show(fields []ownership.Field) (all []string) {
	for _, f := range fields {
		value, _ := json.Marshal(f.Value)
		all = append(all, fmt.Sprintf("%s=%s", strings.Join(f.Path, "."), value))
	}
	return all
}

func TestFields(t *testing.T) {
	for text, want := range map[string]string{
		`{"kind":"Machine","name":"m1"}`:                                 ``,
		`{"labels":{"a/b":"c"},"spec":{"platform":"p1"}}`:                `labels.a/b="c" spec.platform="p1"`,
		`{"spec":{"cordoned":false,"rack":""}}`:                          `spec.cordoned=null spec.rack=null`,
		`{"spec":{"nics":[],"bmc":null}}`:                                `spec.bmc=null spec.nics=null`,
		`{"labels":null,"spec":{}}`:                                      ``,
		`{"spec":{"nics":[{"mac":"52:54:00:00:00:01","address":""}]}}`:   `spec.nics=[{"mac":"52:54:00:00:00:01"}]`,
		`{"spec":{"bmc":{"protocol":"ipmi","address":"10.0.0.1"}}}`:      `spec.bmc.address="10.0.0.1" spec.bmc.protocol="ipmi"`,
		`{"status":{"state":"active"},"uid":"u","managed":{"a":["/b"]}}`: ``,
	} {
		if got := strings.Join(show(fields(t, text)), " "); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

// record is a stored record with its owners.
type record struct {
	t      testing.TB
	now    map[string]any
	owners ownership.Owners
}

// apply applies a file, and returns the fields that are in conflict.
func (r *record) apply(manager, text string, force bool) (conflicts []string) {
	r.t.Helper()
	f := fields(r.t, text)
	next := r.merged(r.owners.Patch(manager, f, r.now))
	for _, c := range r.owners.Conflicts(manager, f, r.now, next) {
		conflicts = append(conflicts, c.Field)
	}
	if len(conflicts) > 0 && !force {
		return conflicts
	}
	owners, err := r.owners.Applied(manager, f, r.now, next)
	if err != nil {
		r.t.Fatal(err)
	}
	r.now, r.owners = next, owners
	return conflicts
}

// patch changes it by a merge patch.
func (r *record) patch(text string) {
	r.t.Helper()
	next := r.merged(parse(r.t, text))
	r.now, r.owners = next, r.owners.Changed(r.now, next)
}

func (r *record) merged(patch any) map[string]any {
	r.t.Helper()
	before, err := json.Marshal(r.now)
	if err != nil {
		r.t.Fatal(err)
	}
	change, err := json.Marshal(patch)
	if err != nil {
		r.t.Fatal(err)
	}
	after, err := apitypes.ApplyMergePatch(before, change)
	if err != nil {
		r.t.Fatal(err)
	}
	return parse(r.t, string(after))
}

// A step of a test is an apply ("manager: record"), a forced one ("manager! record") or a merge patch ("record"). It
// has the conflicts and the record afterwards.
type step struct{ do, conflicts, want string }

func TestApply(t *testing.T) {
	for name, steps := range map[string][]step{
		"what Trivet wrote stays": {
			{`{"spec":{"nics":[{"mac":"52:54:00:00:00:01"}]}}`, "", `{"spec":{"nics":[{"mac":"52:54:00:00:00:01"}]}}`},
			{`a: {"spec":{"platform":"p1"}}`, "", `{"spec":{"platform":"p1","nics":[{"mac":"52:54:00:00:00:01"}]}}`},
			{`a: {"spec":{}}`, "", `{"spec":{"nics":[{"mac":"52:54:00:00:00:01"}]}}`},
		},
		"a field that is dropped is removed": {
			{`a: {"labels":{"x":"1","y":"2"},"spec":{"rack":"r1","platform":"p1"}}`, "",
				`{"labels":{"x":"1","y":"2"},"spec":{"rack":"r1","platform":"p1"}}`},
			{`a: {"labels":{"y":"2"},"spec":{"platform":"p1"}}`, "", `{"labels":{"y":"2"},"spec":{"platform":"p1"}}`},
		},
		"a change by others is a conflict": {
			{`a: {"spec":{"rack":"r1"}}`, "", `{"spec":{"rack":"r1"}}`},
			{`{"spec":{"rack":"r2"}}`, "", `{"spec":{"rack":"r2"}}`},
			{`a: {"spec":{"rack":"r3"}}`, "spec.rack", `{"spec":{"rack":"r2"}}`},
			{`a: {"spec":{"rack":"r1"}}`, "spec.rack", `{"spec":{"rack":"r2"}}`},
			{`a: {"spec":{"rack":"r2"}}`, "", `{"spec":{"rack":"r2"}}`}, // the file has it again
			{`a: {"spec":{"rack":"r4"}}`, "", `{"spec":{"rack":"r4"}}`},
		},
		"a removal by others is a conflict": {
			{`a: {"labels":{"x":"1"}}`, "", `{"labels":{"x":"1"}}`},
			{`{"labels":{"x":null}}`, "", `{"labels":{}}`},
			{`a: {"labels":{"x":"1"}}`, "labels.x", `{"labels":{}}`},
			{`a: {"labels":{}}`, "", `{"labels":{}}`},
			{`a: {"labels":{"x":"1"}}`, "", `{"labels":{"x":"1"}}`}, // of no one since
		},
		"force takes it back": {
			{`a: {"spec":{"rack":"r1"}}`, "", `{"spec":{"rack":"r1"}}`},
			{`{"spec":{"rack":"r2"}}`, "", `{"spec":{"rack":"r2"}}`},
			{`a! {"spec":{"rack":"r3"}}`, "spec.rack", `{"spec":{"rack":"r3"}}`},
			{`a: {"spec":{"rack":"r4"}}`, "", `{"spec":{"rack":"r4"}}`},
		},
		"what others changed stays when the file drops it": {
			{`a: {"spec":{"rack":"r1"}}`, "", `{"spec":{"rack":"r1"}}`},
			{`{"spec":{"rack":"r2"}}`, "", `{"spec":{"rack":"r2"}}`},
			{`a: {"spec":{}}`, "", `{"spec":{"rack":"r2"}}`},
		},
		"two managers": {
			{`a: {"spec":{"rack":"r1"}}`, "", `{"spec":{"rack":"r1"}}`},
			{`b: {"spec":{"platform":"p1"}}`, "", `{"spec":{"rack":"r1","platform":"p1"}}`},
			{`b: {"spec":{"platform":"p1","rack":"r2"}}`, "spec.rack", `{"spec":{"rack":"r1","platform":"p1"}}`},
			{`b: {"spec":{"platform":"p1","rack":"r1"}}`, "", `{"spec":{"rack":"r1","platform":"p1"}}`}, // both have it
			{`a: {"spec":{}}`, "", `{"spec":{"rack":"r1","platform":"p1"}}`},
			{`b: {"spec":{"platform":"p1"}}`, "", `{"spec":{"platform":"p1"}}`},
		},
		"an object and its fields": {
			{`a: {"spec":{"bmc":{"protocol":"ipmi","address":"10.0.0.1"}}}`, "",
				`{"spec":{"bmc":{"protocol":"ipmi","address":"10.0.0.1"}}}`},
			{`b: {"spec":{"bmc":null}}`, "spec.bmc", `{"spec":{"bmc":{"protocol":"ipmi","address":"10.0.0.1"}}}`},
			{`b! {"spec":{"bmc":null}}`, "spec.bmc", `{"spec":{}}`},
			{`a: {"spec":{"rack":"r1"}}`, "", `{"spec":{"rack":"r1"}}`},
		},
		"an object that loses all its fields is removed": {
			{`a: {"spec":{"bmc":{"protocol":"ipmi","address":"10.0.0.1"},"disk":{"serial":"S"}}}`, "",
				`{"spec":{"bmc":{"protocol":"ipmi","address":"10.0.0.1"},"disk":{"serial":"S"}}}`},
			{`{"spec":{"disk":{"model":"M"}}}`, "",
				`{"spec":{"bmc":{"protocol":"ipmi","address":"10.0.0.1"},"disk":{"serial":"S","model":"M"}}}`},
			{`a: {"spec":{"rack":"r1"}}`, "", `{"spec":{"rack":"r1","disk":{"model":"M"}}}`},
		},
		"what others set where a file had nothing stays when its line is dropped": {
			{`a: {"spec":{"rack":"r1","nics":[]}}`, "", `{"spec":{"rack":"r1"}}`},
			{`{"spec":{"nics":[{"mac":"52:54:00:00:00:01"}]}}`, "",
				`{"spec":{"rack":"r1","nics":[{"mac":"52:54:00:00:00:01"}]}}`},
			{`a: {"spec":{"rack":"r1"}}`, "", `{"spec":{"rack":"r1","nics":[{"mac":"52:54:00:00:00:01"}]}}`},
			{`a: {"spec":{"rack":"r1","nics":[]}}`, "", `{"spec":{"rack":"r1"}}`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := &record{t: t, now: map[string]any{}}
			for i, s := range steps {
				conflicts := ""
				switch manager, text, _ := strings.Cut(s.do, " "); {
				case strings.HasSuffix(manager, ":"), strings.HasSuffix(manager, "!"):
					force := strings.HasSuffix(manager, "!")
					conflicts = strings.Join(r.apply(manager[:len(manager)-1], text, force), " ")
				default:
					r.patch(s.do)
				}
				if conflicts != s.conflicts {
					t.Errorf("step %d, %s: conflicts %q, want %q", i, s.do, conflicts, s.conflicts)
				}
				if d := cmp.Diff(parse(t, s.want), r.now); d != "" {
					t.Errorf("step %d, %s: %s", i, s.do, d)
				}
			}
		})
	}
}

func TestManagers(t *testing.T) {
	for name, want := range map[string]bool{"apply": true, "site-1": true, "direct": false, "": false, "A b": false,
		strings.Repeat("a", 63): true, strings.Repeat("a", 64): false} {
		if err := ownership.ValidateManager(name); (err == nil) != want {
			t.Errorf("%q: %v", name, err)
		}
	}
	owners, f := ownership.Owners{}, fields(t, `{"spec":{"rack":"r1"}}`)
	for i := range ownership.MaxManagers + 1 {
		next, err := owners.Applied(fmt.Sprint("m", i), f, nil, nil)
		if (err == nil) != (i < ownership.MaxManagers) {
			t.Errorf("manager %d: %v", i, err)
		}
		if err == nil {
			owners = next
		}
	}
	if owners = owners.Changed(map[string]any{"spec": map[string]any{"rack": "r1"}}, nil); len(owners) != 1 {
		t.Errorf("managers without fields remain: %v", owners)
	}
	if _, err := owners.Applied("m9", f, nil, nil); err != nil {
		t.Errorf("after all others have lost their fields: %v", err)
	}
	renamed := ownership.Owners{"a": {"/x", "/z"}, "b": {"/x", "/y"}}.Renamed("a", "b")
	if want := (ownership.Owners{"b": {"/x", "/y", "/z"}}); !cmp.Equal(renamed, want) {
		t.Errorf("renamed: %v", renamed)
	}
}

// Random writes of two managers and of others: an apply without a conflict leaves what it has, nothing of its manager's
// former fields that no other has, and all else as it was; a refused one would have changed a field of another.
func TestApplyProperties(t *testing.T) {
	keys := []string{"k1", "k2", "k/3", "k~4"}
	rapid.Check(t, func(rt *rapid.T) {
		r := &record{t: t, now: map[string]any{}}
		last := map[string]map[string]string{} // what each manager applied last
		for range rapid.IntRange(1, 12).Draw(rt, "steps") {
			manager := rapid.SampledFrom([]string{"a", "b", ""}).Draw(rt, "manager")
			labels := map[string]string{}
			for _, key := range keys {
				if v := rapid.SampledFrom([]string{"", "1", "2"}).Draw(rt, key); v != "" {
					labels[key] = v
				}
			}
			text, _ := json.Marshal(map[string]any{"labels": labels})
			before, _ := r.now["labels"].(map[string]any)
			before = maps.Clone(before)
			owners := r.owners
			if manager == "" {
				r.patch(string(text))
				continue
			}
			conflicts := r.apply(manager, string(text), false)
			after, _ := r.now["labels"].(map[string]any)
			if len(conflicts) > 0 {
				for _, c := range conflicts {
					key := strings.TrimPrefix(c, "labels.")
					if before[key] == labels[key] || !hasOther(owners, manager, key) {
						rt.Fatalf("%s: conflict of %q without cause: %v, owners %v", text, key, before, owners)
					}
				}
				if !maps.Equal(before, after) {
					rt.Fatalf("a refused apply changed %v to %v", before, after)
				}
				continue
			}
			for _, key := range keys {
				want, has := labels[key]
				_, had := last[manager][key]
				switch {
				case has && after[key] != want:
					rt.Fatalf("%s: %q is %v", text, key, after[key])
				case !has && !had && after[key] != before[key]:
					rt.Fatalf("%s: %q of others changed from %v to %v", text, key, before[key], after[key])
				case !has && had && hasOther(owners, manager, key) && after[key] != before[key]:
					rt.Fatalf("%s: %q, which others have, too, changed from %v to %v", text, key, before[key], after[key])
				case !has && slices.Contains(owners[manager], pointer(key)) && !hasOther(owners, manager, key) &&
					after[key] != nil:
					rt.Fatalf("%s: %q remains: %v, owners %v", text, key, after[key], owners)
				}
			}
			last[manager] = labels
		}
	})
}

func pointer(key string) string {
	return "/labels/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(key)
}

func hasOther(owners ownership.Owners, manager, key string) bool {
	for other, has := range owners {
		if other != manager && slices.Contains(has, pointer(key)) {
			return true
		}
	}
	return false
}
