package ansible_test

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// records are what a program prints, by kind; a kind that is not in it has no records.
type records map[string]string

// listOf runs the script with a program that prints records.
func (r *runner) listOf(all records) result {
	r.Helper()
	dir := r.TempDir()
	for _, kind := range []string{"machines", "provisions", "addresses"} {
		r.write(filepath.Join(dir, kind), "["+all[kind]+"]", 0o600)
	}
	return r.list("TRIVET=" + r.program("cat "+dir+"/$2"))
}

// machine returns the record of a machine in JSON, with more fields.
func machine(name, more string) string {
	return `{"kind": "Machine", "name": "` + name + `", "uid": "U", "status": {"state": "active"}` + more + `}`
}

// The address is that of the installed system, or one that is fixed, or one that is leased.
func TestAddress(t *testing.T) {
	t.Parallel()
	r := &runner{T: t}
	const served = `, "status": {"state": "active", "provision": "lab/web"}`
	const nics = `, "spec": {"nics": [{"mac": "m1"}, {"mac": "m2", "address": "10.0.0.7"}]}`
	const port = `, "spec": {"nics": [{"mac": "m1"}, {"mac": "m2"}]}`
	installed := `{"project": "lab", "name": "web", "status": {"machineUID": "U", "address": "10.0.0.9"}}`
	lease := func(name, mac, uid, status string) string {
		spec := `{"mac": "` + mac + `", "machineUID": "` + uid + `"}`
		return `{"name": "` + name + `", "spec": ` + spec + `, "status": {` + status + `}}`
	}
	for _, c := range []struct {
		name, machine, provision string
		addresses                []string
		want                     any
	}{
		{"none", "", "", nil, nil},
		{"installed", served + nics, installed, nil, "10.0.0.9"},
		{"installed on another machine", served + nics, strings.Replace(installed, `"U"`, `"other"`, 1), nil, "10.0.0.7"},
		{"of another project", served + nics, strings.Replace(installed, "lab", "default", 1), nil, "10.0.0.7"},
		{"fixed", nics, "", []string{lease("10.0.0.1", "m1", "U", "")}, "10.0.0.7"},
		{"leased", port, "", []string{lease("10.0.0.20", "m1", "U", ""), lease("10.0.0.3", "m1", "U", "")}, "10.0.0.3"},
		{"of the second port", port, "", []string{lease("10.0.0.20", "m2", "U", "")}, "10.0.0.20"},
		{"of the first port", port, "", []string{lease("10.0.0.1", "m2", "U", ""), lease("10.0.0.8", "m1", "U", "")},
			"10.0.0.8"},
		{"released", port, "", []string{lease("10.0.0.1", "m1", "U", `"released": true`)}, nil},
		{"declined", port, "", []string{lease("10.0.0.1", "m1", "U", `"declined": true`)}, nil},
		{"of a former machine", port, "", []string{lease("10.0.0.1", "m1", "former", "")}, nil},
	} {
		out := r.ok(r.listOf(records{"machines": machine("m", c.machine), "provisions": c.provision,
			"addresses": strings.Join(c.addresses, ",")}))
		if got := r.parse(out).vars["m"]["ansible_host"]; got != c.want {
			t.Errorf("%s: the address is %v, want %v", c.name, got, c.want)
		}
	}
}

// What would have the same group has groups with digests, which do not depend on other machines.
func TestGroupsAreNotMerged(t *testing.T) {
	t.Parallel()
	r := &runner{T: t}
	served := func(provision string) string {
		return `, "status": {"state": "active", "provision": "` + provision + `"}`
	}
	all := []string{
		machine("m1", served("p/web")+`, "labels": {"a": "b_c", "x": "Zürich"}`),
		machine("m2", served("p-web")+`, "labels": {"a_b": "c", "x": "Z_rich"}`),
		machine("m3", served("p-web")+`, "labels": {"a": "b-c"}`),
	}
	want := map[string][]string{
		"trivet": {"m1", "m2", "m3"}, "state_active": {"m1", "m2", "m3"},
		"project_p": {"m1"}, "project_default": {"m2", "m3"},
		"provision_p_web_114db060": {"m1"}, "provision_p_web_5ab14e2b": {"m2", "m3"},
		"label_a_b_c_fdc896c5": {"m1"}, "label_a_b_c_cd96a159": {"m2"}, "label_a_b_c_503d3bf1": {"m3"},
		"label_x_Z_rich_38d19d7e": {"m1"}, "label_x_Z_rich_9950d113": {"m2"},
	}
	of := r.listOf(records{"machines": strings.Join(all, ",")})
	got := r.parse(r.ok(of)).groups
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the groups (-want +got):\n%s", diff)
	}
	for _, text := range []string{`label x='Z\xfcrich' is group label_x_`, "provision p-web is group provision_p_web_"} {
		if !strings.Contains(of.stderr, text) {
			t.Errorf("%q is not in the warnings: %s", text, of.stderr)
		}
	}
	slices.Reverse(all)
	if again := r.parse(r.ok(r.listOf(records{"machines": strings.Join(all, ",")}))).groups; !cmp.Equal(got, again) {
		t.Errorf("in another order the groups are %v", slices.Sorted(maps.Keys(again)))
	}
	all = append(all, machine("m4", `, "labels": {"a": "b_c_fdc896c5"}`))
	r.fails(r.listOf(records{"machines": strings.Join(all, ",")}), "several groups have the same name, also with their")
}

// Records that no head returns are an error.
func TestWrongRecords(t *testing.T) {
	t.Parallel()
	r := &runner{T: t}
	for text, want := range map[string]string{
		"7":                                   "its output is not a list of records",
		machine("{{ 1 }}", ""):                "'{{ 1 }}' is not the name of a machine",
		machine("m", `, "spec": {"rack": 7}`): "Machine 'm': spec.rack is of an unknown form",
		machine("m", `, "labels": {"{{ 1 }}": "x"}`):            "'{{ 1 }}' is not the key of a label",
		machine("m", `, "labels": {"k": {"v": "x"}}`):           "Machine 'm': a label is of an unknown form",
		machine("m", `, "spec": {"nics": [{"address": "{{"}]}`): "'{{' is not an address",
	} {
		r.fails(r.listOf(records{"machines": text}), want)
	}
}
