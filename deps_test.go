package trivet_test

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"strings"
	"testing"
)

const module = "github.com/trivet-project/trivet"

// never lists the direct imports that the house forbids (docs/architecture.md, "The floors"). Patterns are import paths
// below the module, or whole paths; "/..." takes what is below as well. Tests may import what they like.
var never = []struct {
	who  []string
	what []string
}{
	{[]string{""}, []string{module + "/...", "net", "net/http", "os"}},
	{[]string{"internal/boot", "internal/workflow", "internal/ipam", "internal/placement"},
		[]string{module + "/internal/store", "net", "net/http", "os"}},
	{[]string{"internal/dhcp", "internal/tftp", "internal/dns", "internal/bmc"}, []string{
		module + "/internal/boot", module + "/internal/workflow", module + "/internal/ipam",
		module + "/internal/placement", module + "/internal/store",
	}},
	{[]string{"internal/netboot"}, []string{module + "/internal/api", module + "/internal/controller/...", module + "/internal/cluster"}},
	{[]string{"internal/api"}, []string{module + "/internal/bmc", module + "/internal/dhcp"}},
	{[]string{"internal/agent/..."}, []string{module + "/internal/store", module + "/internal/cluster", module + "/internal/controller/..."}},
	{[]string{"internal/web", "internal/cli", "client"}, []string{module + "/internal/store"}},
}

// labOnly may import the simulated parts, etcdOnly the store's engine.
var (
	labOnly  = []string{"cmd/trivet", "internal/lab", "test"}
	etcdOnly = []string{"internal/store", "internal/cluster"}
)

// clockless are the packages of rules: they get the time, they do not ask for it. See TestRulesAskNoClock.
var clockless = []string{"internal/boot", "internal/workflow", "internal/ipam", "internal/placement"}

type goPackage struct {
	ImportPath string
	Dir        string
	GoFiles    []string
	Imports    []string
}

func (p goPackage) place() string {
	return strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
}

func TestImportsGoDown(t *testing.T) {
	for _, p := range packages(t) {
		for _, rule := range never {
			if !anyMatches(rule.who, p.place()) {
				continue
			}
			for _, imported := range p.Imports {
				if anyMatches(rule.what, imported) {
					t.Errorf("%s imports %s", p.ImportPath, imported)
				}
			}
		}
		for _, imported := range p.Imports {
			if strings.HasPrefix(imported, module+"/internal/lab") && !within(labOnly, p.place()) {
				t.Errorf("%s imports the lab: %s", p.ImportPath, imported)
			}
			if strings.HasPrefix(imported, "go.etcd.io/") && !within(etcdOnly, p.place()) {
				t.Errorf("%s imports etcd: %s", p.ImportPath, imported)
			}
		}
		if p.place() == "" {
			for _, imported := range p.Imports {
				if strings.Contains(imported, ".") {
					t.Errorf("the root package imports %s; it takes the standard library only", imported)
				}
			}
		}
	}
}

func TestRulesAskNoClock(t *testing.T) {
	for _, p := range packages(t) {
		if !within(clockless, p.place()) {
			continue
		}
		for _, file := range p.GoFiles {
			if line := grep(t, p.Dir+"/"+file, "time.Now(", "time.Since(", "time.Sleep("); line != "" {
				t.Errorf("%s/%s asks the clock: %s", p.place(), file, line)
			}
		}
	}
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

func anyMatches(patterns []string, path string) bool {
	for _, pattern := range patterns {
		base, below := strings.CutSuffix(pattern, "/...")
		if path == base && (!below || base != module) || below && strings.HasPrefix(path, base+"/") {
			return true
		}
	}
	return false
}

func within(places []string, place string) bool {
	for _, p := range places {
		if place == p || strings.HasPrefix(place, p+"/") {
			return true
		}
	}
	return false
}
