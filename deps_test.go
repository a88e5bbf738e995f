package trivet_test

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/trivet-project/trivet"

// A layer is a row of the table in docs/architecture.md. Its ranks are ordered from the bottom up: the packages of one
// rank do not import each other.
type layer struct {
	name  string
	ranks [][]string
}

// layers is the allow-list of packages, from the bottom up. A package imports packages of lower ranks only, and one
// that is not listed fails. Tests may import what they like.
var layers = []layer{
	{"public", [][]string{{"."}, {"client"}}},
	{"mechanisms", [][]string{
		{
			"internal/apitypes", "internal/faultinject", "internal/image/docker", "internal/image/qcow2", "internal/keyring",
			"internal/limit", "internal/wait",
		},
		{
			"internal/archive", "internal/auth", "internal/blob", "internal/bmc", "internal/bucket", "internal/cluster",
			"internal/dhcp", "internal/hostnet", "internal/image", "internal/notify", "internal/platform", "internal/program",
			"internal/runlog", "internal/store", "internal/tftp",
		},
	}},
	{"rules", [][]string{
		{
			"internal/actionspec", "internal/boot", "internal/invariant", "internal/ipam", "internal/learnt",
			"internal/machinelist", "internal/netconfig", "internal/ownership", "internal/placement", "internal/uptime",
		},
		{"internal/provision", "internal/reference", "internal/workflow"},
	}},
	{"machine", [][]string{
		{"internal/agent/action/gpt", "internal/agent/container/rootfs"},
		{
			"internal/agent/action/block", "internal/agent/container/oci", "internal/agent/container/sandbox",
			"internal/agent/installer/journal", "internal/agent/installer/osinit",
		},
		{"internal/agent/inventory"},
		{"internal/agent/action"},
		{"internal/agent/installer"},
	}},
	{"state", [][]string{{"internal/peer", "internal/reconcile", "internal/state"}}},
	{"domain", [][]string{{"internal/addressing"}, {"internal/fleet"}}},
	{"cluster", [][]string{
		{
			"internal/console", "internal/health", "internal/maintenance", "internal/membership", "internal/presence",
			"internal/replica",
		},
		{"internal/recovery", "internal/takeover"},
	}},
	{"surfaces", [][]string{{
		"internal/api", "internal/netboot", "internal/controller/backup", "internal/controller/blobs",
		"internal/controller/bucket", "internal/controller/collect",
		"internal/controller/console", "internal/controller/deadline", "internal/controller/heads",
		"internal/controller/keys", "internal/controller/members", "internal/controller/notify",
		"internal/controller/platforms", "internal/controller/power",
		"internal/controller/powerstate", "internal/controller/provision",
		"internal/controller/upgrade", "internal/controller/verify",
	}}},
	{"programs", [][]string{
		{"internal/cli", "internal/server", "internal/bmc/bmctest", "internal/lab/grade", "internal/lab/vm"},
		{"internal/lab"},
		{"cmd/trivet"},
	}},
	{"tests", [][]string{
		{
			"internal/auth/authtest", "internal/docsgen", "internal/reconcile/reconciletest", "internal/storetest",
			"test/tftpclient",
		},
		{"internal/testhead", "test/faultfs", "test/e2e/debimage"},
		{"internal/lab/vm/vmtest"},
		{
			"test/ansible", "test/bench", "test/cluster", "test/dashboards", "test/deb", "test/demo", "test/e2e",
			"test/e2e/debimage/build", "test/gotest", "test/guide", "test/head", "test/heads", "test/newrecord",
			"test/release", "test/s3",
		},
	}},
}

// only lists who else may import what is more than the layers say.
var only = []struct {
	what string
	who  []string
	why  string
}{
	{"go.etcd.io/", []string{"internal/store", "internal/cluster"}, "etcd stays behind the store"},
	{"github.com/minio/", []string{"internal/bucket"}, "S3 stays behind the bucket"},
	{module + "/internal/lab", []string{"internal/lab", "cmd/trivet", "test"},
		"what is simulated is out of reach of production code"},
	{module + "/internal/bmc/bmctest", []string{"internal/lab", "test"},
		"what is simulated is out of reach of production code"},
}

// never lists imports that a package must not have although the layers allow them.
var never = []struct {
	who, what []string
	why       string
}{
	{[]string{"."}, []string{"net", "net/http", "os", "os/exec"}, "the records do no I/O"},
	{layerNamed("rules").packages(), []string{"net", "net/http", "os", "os/exec"}, "rules do no I/O"},
	{layerNamed("machine").packages(), append(layerNamed("state").imports(), module+"/internal/store",
		module+"/internal/cluster"),
		"a program in the machine holds no state of the cluster"},
	{[]string{"internal/cli"}, []string{module + "/internal/store", module + "/internal/cluster",
		module + "/internal/fleet"},
		"the operator's commands use the API"},
}

func TestImportsGoDown(t *testing.T) {
	for _, p := range packages(t) {
		from := rankOf(p.place())
		if from < 0 {
			t.Errorf("%s is in no layer: add it to the table in deps_test.go and to docs/architecture.md", p.place())
			continue
		}
		for _, imported := range p.Imports {
			place, ours := placeOf(imported)
			if to := rankOf(place); ours && to >= from {
				t.Errorf("%s (%s) imports %s (%s), which is not lower", p.place(), layerAt(from), place, layerAt(to))
			}
		}
	}
}

func TestForbiddenImports(t *testing.T) {
	for _, p := range packages(t) {
		for _, imported := range p.Imports {
			for _, rule := range only {
				if strings.HasPrefix(imported, rule.what) && !within(rule.who, p.place()) {
					t.Errorf("%s imports %s: %s", p.place(), imported, rule.why)
				}
			}
			for _, rule := range never {
				if within(rule.who, p.place()) && slices.Contains(rule.what, imported) {
					t.Errorf("%s imports %s: %s", p.place(), imported, rule.why)
				}
			}
			if p.place() == "." && strings.Contains(imported, ".") {
				t.Errorf("the root package imports %s; it imports the standard library only", imported)
			}
		}
	}
}

// Every row of the table names a package that exists, and docs/architecture.md names it too.
func TestLayersAreCurrent(t *testing.T) {
	doc, err := os.ReadFile("docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	all := packages(t)
	for _, l := range layers {
		for _, row := range l.packages() {
			base := strings.TrimSuffix(row, "/...")
			if !slices.ContainsFunc(all, func(p goPackage) bool { return within([]string{base}, p.place()) }) {
				t.Errorf("the layer %s lists %s, which does not exist", l.name, row)
			}
			if name := strings.TrimPrefix(base, "internal/"); base != "." && !strings.Contains(string(doc), "`"+name) {
				t.Errorf("docs/architecture.md does not name `%s`", name)
			}
		}
	}
}

func TestRulesUseNoClock(t *testing.T) {
	for _, p := range packages(t) {
		if !within(layerNamed("rules").packages(), p.place()) {
			continue
		}
		for _, file := range p.GoFiles {
			if line := grep(t, p.Dir+"/"+file, "time.Now(", "time.Since(", "time.Sleep("); line != "" {
				t.Errorf("%s/%s uses the clock: %s", p.place(), file, line)
			}
		}
	}
}

func layerNamed(name string) layer {
	return layers[slices.IndexFunc(layers, func(l layer) bool { return l.name == name })]
}

func (l layer) packages() []string { return slices.Concat(l.ranks...) }

// imports lists the layer's packages as import paths.
func (l layer) imports() (paths []string) {
	for _, p := range l.packages() {
		paths = append(paths, module+"/"+p)
	}
	return paths
}

// rankOf counts ranks from the bottom; it is -1 for a package that is not listed.
func rankOf(place string) int {
	rank := 0
	for _, l := range layers {
		for _, row := range l.ranks {
			if slices.ContainsFunc(row, func(p string) bool { return lists(p, place) }) {
				return rank
			}
			rank++
		}
	}
	return -1
}

// lists reports whether an entry is the package, or "path/..." above it.
func lists(entry, place string) bool {
	below, ok := strings.CutSuffix(entry, "/...")
	return entry == place || ok && strings.HasPrefix(place, below+"/")
}

func layerAt(rank int) string {
	for _, l := range layers {
		if rank < len(l.ranks) {
			return l.name
		}
		rank -= len(l.ranks)
	}
	return "unlisted"
}

type goPackage struct {
	ImportPath string
	Dir        string
	GoFiles    []string
	Imports    []string
}

func (p goPackage) place() string {
	place, _ := placeOf(p.ImportPath)
	return place
}

// placeOf returns a package's path below the module, "." for the root.
func placeOf(importPath string) (place string, ours bool) {
	if importPath == module {
		return ".", true
	}
	return strings.CutPrefix(importPath, module+"/")
}

func packages(t *testing.T) []goPackage {
	t.Helper()
	out, err := exec.Command("go", "list", "-json=ImportPath,Dir,GoFiles,Imports", "./...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var list []goPackage
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p goPackage
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return list
		} else if err != nil {
			t.Fatal(err)
		}
		list = append(list, p)
	}
}

// within reports whether a package is one of the places or below one.
func within(places []string, place string) bool {
	return slices.ContainsFunc(places, func(p string) bool {
		return place == p || strings.HasPrefix(place, p+"/")
	})
}
