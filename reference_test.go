package trivet_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
)

// notReferences are fields that are called like a kind and do not refer to its records.
var notReferences = map[string]string{
	"MAC.spec.mac":                      "",
	"Machine.spec.nics.mac":             "the MAC's record is written with it",
	"Machine.spec.interfaces.mac":       "one of spec.nics",
	"Workflow.spec.seed.interfaces.mac": "of the machine as of the claim",
	"Machine.spec.bmc.address":          "a host",
	"Head.spec.bmc.address":             "a host",
	"Machine.status.intent.head":        "who wrote it",
	"Machine.status.inventory.nics.mac": "hardware",
	"Address.spec.mac":                  "a port, which has no record if its machine is unknown",
	"Event.spec.head":                   "who wrote it",
	"Site.status.recovered.head":        "history; its record may be gone",
	"Upgrade.status.head":               "a member that may be removed meanwhile; another one follows then",
}

// Every field that is called like a kind refers to it, and is declared.
func TestReferencesAreDeclared(t *testing.T) {
	for _, info := range trivet.Kinds {
		for _, path := range referencesIn(reflect.TypeOf(info.New()).Elem(), "", nil) {
			name := fmt.Sprintf("%s.%s", info.Kind, path)
			declared := slices.ContainsFunc(trivet.References, func(r trivet.Reference) bool {
				return r.From == info.Kind && (r.Field == path || strings.HasPrefix(path, r.Field+"."))
			})
			if _, not := notReferences[name]; declared == not {
				t.Errorf("%s: declared %t, in notReferences %t; add it to References in reference.go", name, declared, not)
			}
		}
	}
}

// referencesIn returns the paths of the texts that are called like a kind.
func referencesIn(t reflect.Type, at string, in []reflect.Type) (paths []string) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || slices.Contains(in, t) {
		return nil
	}
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		path := strings.TrimPrefix(at+"."+name, ".")
		if f.Anonymous {
			path = at
		}
		_, err := trivet.LookupKind(name)
		if err == nil && name == strings.TrimSuffix(name, "s") && f.Type.Kind() == reflect.String && f.IsExported() {
			paths = append(paths, path)
		}
		paths = append(paths, referencesIn(f.Type, path, append(in, t))...)
	}
	return paths
}

// What is deleted with its target must not be mistaken for what refers to a later one of that name.
func TestCascadesHaveUIDs(t *testing.T) {
	for _, r := range trivet.References {
		if r.OnDelete != trivet.DeletionCascades {
			continue
		}
		info, err := trivet.LookupKind(string(r.From))
		if err != nil {
			t.Fatal(err)
		}
		rec := info.New()
		setAll(reflect.ValueOf(rec).Elem().FieldByName("Spec"))
		if status := reflect.ValueOf(rec).Elem().FieldByName("Status"); status.IsValid() {
			setAll(status)
		}
		targets := r.Targets(rec)
		if len(targets) == 0 {
			t.Errorf("%s.%s: no target", r.From, r.Field)
		}
		for _, target := range targets {
			if target.UID == nil {
				t.Errorf("%s.%s is deleted with %s, but has no UID", r.From, r.Field, r.To)
			}
		}
	}
}

// setAll sets all texts of a struct.
func setAll(v reflect.Value) {
	for i := range v.NumField() {
		if f := v.Field(i); f.Kind() == reflect.String {
			f.SetString("x")
		}
	}
}
