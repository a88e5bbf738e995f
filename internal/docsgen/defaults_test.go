package docsgen

import (
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/apitypes"
	"github.com/trivet-project/trivet/internal/reference"
)

// defaults are what holds where a field is empty. That nothing reads such a field otherwise: see
// TestDefaultsAreNotBypassed.
const defaults = `
	Machine.spec.interfaces.bond.lacpRate=slow Machine.spec.interfaces.bond.hashPolicy=layer2
	Template.spec.actions.timeout=10m
	Provision.spec.alternatives=1 Provision.spec.ifNoMachine=wait Provision.spec.head.role=voter
	Workflow.spec.actions.timeout=10m
	Workflow.spec.seed.interfaces.bond.lacpRate=slow Workflow.spec.seed.interfaces.bond.hashPolicy=layer2
	Network.spec.dhcp=server Network.spec.unknown=enrol Network.spec.lease=24h Network.spec.newClients=20
	Site.spec.discovered=2000 Site.spec.agentTimeout=45s Site.spec.resets=3 Site.spec.lateAfter=30s
	Site.spec.raceBudget=5 Site.spec.tokenLifetime=2160h Site.spec.release=no-wipe
	Head.spec.role=voter Upgrade.spec.soak=1m BackupSchedule.spec.keep=14`

func TestDefaults(t *testing.T) {
	var got []string
	for _, k := range documented(t).Kinds {
		each(k, k.Name, func(path string, f reference.Field) {
			if f.Default != "" {
				got = append(got, path+"="+f.Default)
			}
		})
	}
	if got, want := strings.Join(got, " "), strings.Join(strings.Fields(defaults), " "); got != want {
		t.Errorf("defaults are\n%s\nwant\n%s", got, want)
	}
}

func documented(t *testing.T) reference.Document {
	t.Helper()
	src, err := parsePackage(root)
	if err != nil {
		t.Fatal(err)
	}
	return withRules(document(src))
}

// A field may be set to its default, as the reference writes it. It is the same then as when it is empty, and otherwise
// with another value.
func TestDefaultsCanBeWritten(t *testing.T) {
	seen := 0
	var check func(typ reflect.Type, fields []reference.Field, path string)
	check = func(typ reflect.Type, fields []reference.Field, path string) {
		for _, f := range fields {
			field := apitypes.Properties(typ)[f.Name]
			at := path + "." + f.Name
			if f.Default != "" {
				seen++
				checkDefault(t, at, typ, field, f)
			}
			if below := element(field.Type); below.Kind() == reflect.Struct && len(f.Fields) > 0 {
				check(below, f.Fields, at)
			}
		}
	}
	for _, k := range documented(t).Kinds {
		info, err := trivet.LookupKind(k.Name)
		if err != nil {
			t.Fatal(err)
		}
		check(reflect.TypeOf(info.New()).Elem(), k.Fields, k.Name)
	}
	if want := len(strings.Fields(defaults)); seen != want {
		t.Errorf("%d fields have defaults, want %d", seen, want)
	}
}

func checkDefault(t *testing.T, at string, in reflect.Type, field reflect.StructField, f reference.Field) {
	result := func(value string) any {
		v := reflect.New(in)
		if err := json.Unmarshal(fmt.Appendf(nil, "{%q: %s}", f.Name, value), v.Interface()); err != nil {
			t.Errorf("%s: %s: %v", at, value, err)
		}
		return v.MethodByName(field.Name + orDefault).Call(nil)[0].Interface()
	}
	set, other := fmt.Sprintf("%q", f.Default), `"77s"`
	if f.Type == "integer" {
		set, other = f.Default, "77"
	}
	if empty := result("null"); result(set) != empty || result(other) == empty {
		t.Errorf("%s: empty it is %v, set to %s %v, to %s %v", at, empty, set, result(set), other, result(other))
	}
	if f.Values != nil && !slices.ContainsFunc(f.Values, func(v reference.Value) bool { return v.Value == f.Default }) {
		t.Errorf("%s: the default %s is none of the values that it may have", at, f.Default)
	}
}

var (
	inProse = regexp.MustCompile(`(?i)\bdefaults?\b`)
	// noDefaults are other things of that name.
	noDefaults = regexp.MustCompile(`(?i)default (router?|project)\b`)
)

// mayMention are fields whose comments have the word nevertheless.
var mayMention = map[string]string{
	"interfaces.mtu": "it depends on the interface",
	"bmc.console":    "false, as of each boolean",
	"mail.server":    "of a part of it",
}

// A default is not stated by a comment, where it may be wrong: it is what a method returns.
func TestDefaultsAreData(t *testing.T) {
	for _, k := range documented(t).Kinds {
		each(k, k.Name, func(path string, f reference.Field) {
			if !inProse.MatchString(noDefaults.ReplaceAllString(f.Description, "")) {
				return
			}
			for name := range mayMention {
				if strings.HasSuffix(path, "."+name) {
					return
				}
			}
			t.Errorf("%s: %q: add a method %s%s instead, which the code uses", path, f.Description, f.Name, orDefault)
		})
	}
}

func TestShortDurations(t *testing.T) {
	for d, want := range map[time.Duration]string{0: "0s", 45 * time.Second: "45s", 10 * time.Minute: "10m",
		time.Hour: "1h", 90 * time.Minute: "1h30m", 2160 * time.Hour: "2160h", time.Hour + time.Second: "1h0m1s",
		100 * time.Second: "1m40s", 20*time.Hour + 10*time.Minute: "20h10m"} {
		if got := short(trivet.Duration(d)); got != want {
			t.Errorf("%s, want %s", got, want)
		}
		if back, err := time.ParseDuration(short(trivet.Duration(d))); back != d {
			t.Errorf("%s is %s, %v", d, back, err)
		}
	}
}
