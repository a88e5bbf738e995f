package docsgen

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/apitypes"
	"github.com/trivet-project/trivet/internal/reference"
)

// Each example is a record of YAML with known fields only, it has what its path says, and it is short.
func TestExamples(t *testing.T) {
	all := cutExamples(documented(t), examples(t))
	if len(all) < 100 {
		t.Errorf("%d examples of %s", len(all), examplesDir)
	}
	for path, text := range all {
		checkExample(t, path, text)
	}
	for _, kind := range []string{"machine", "template", "network", "notifier", "action.image"} {
		if all[kind] == "" {
			t.Errorf("no example of %s", kind)
		}
	}
}

func checkExample(t *testing.T, path, text string) {
	t.Helper()
	if n := strings.Count(text, "\n"); n > maxExample {
		t.Errorf("%s: %d lines", path, n)
	}
	var value map[string]any
	if err := yaml.Unmarshal([]byte(text), &value); err != nil {
		t.Errorf("%s: %v\n%s", path, err, text)
		return
	}
	info, err := trivet.LookupKind(value["kind"].(string))
	if err != nil {
		t.Fatal(err)
	}
	body, err := yaml.YAMLToJSON([]byte(text))
	if err == nil {
		err = apitypes.DecodeStrict(body, info.New())
	}
	if err != nil {
		t.Errorf("%s: %v\n%s", path, err, text)
	}
	names := strings.Split(path, ".")[1:]
	if use, isAction := strings.CutPrefix(path, reference.ActionTopic+"."); isAction {
		use, _, _ = strings.Cut(use, ".")
		names = append([]string{"spec", "actions", "use=" + use, "with"}, names[1:]...)
		if len(names) == 4 {
			names = names[:3]
		}
	}
	if !hasPath(value, names) {
		t.Errorf("%s: the example does not have it\n%s", path, text)
	}
}

// hasPath reports whether a value has a path, in one of the elements of each list and map. "use=image" requires that
// value.
func hasPath(v any, names []string) bool {
	if len(names) == 0 {
		return v != nil
	}
	switch v := v.(type) {
	case []any:
		for _, one := range v {
			if hasPath(one, names) {
				return true
			}
		}
	case map[string]any:
		if key, want, ok := strings.Cut(names[0], "="); ok {
			return v[key] == want && hasPath(v, names[1:])
		}
		if below, ok := v[names[0]]; ok {
			return hasPath(below, names[1:])
		}
		for _, one := range v {
			if m, isMap := one.(map[string]any); isMap && hasPath(m, names) {
				return true
			}
		}
	}
	return false
}

const exampleFile = `# About the file.
kind: Template
name: long
spec:
  # How long each step may take.
  limits:
    # DHCP is slow here.
    dhcp: {timeout: 10m}
    kernel:
      timeout: 5m # with a large initramfs
      retries: 2

  # What is done.
  actions:
  - with:
      path: /etc/motd
      content: |
        kind: of text
        # no comment
    name: motd
    use: file
  # About the next one.
  - {name: wipe, use: wipe, with: {disk: {serial: S1}}}
  - name: a
    use: noop
  - name: b
    use: noop
  - name: c
    use: noop
  - name: d
    use: noop
  - name: last
    use: noop
---
kind: Machine
name: m1
labels:
  pool: web   # chosen by people
spec:
  nics:
  - mac: "52:54:00:00:00:01"
    address: 10.0.0.11
  bmc:
    protocol: ipmi
    address: 10.0.8.11
    secret: bmc
`

// Examples have the comments that are about what they show, and what is required beside it.
func TestCutExamples(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "all.yaml"), []byte(exampleFile), 0o644); err != nil {
		t.Fatal(err)
	}
	records, err := readExamples(dir)
	if err != nil {
		t.Fatal(err)
	}
	all := cutExamples(documented(t), records)
	for path, want := range map[string]string{
		"template.spec.limits": "spec:\n  # How long each step may take.\n  limits:\n    # DHCP is slow here.\n" +
			"    dhcp: {timeout: 10m}\n    kernel:\n      timeout: 5m # with a large initramfs\n      retries: 2\n",
		"template.spec.limits.timeout": "spec:\n  limits:\n    # DHCP is slow here.\n    dhcp: {timeout: 10m}\n",
		"template.spec.limits.retries": "spec:\n  limits:\n    kernel:\n      retries: 2\n",
		"action.file.path": "spec:\n  actions:\n  - with:\n      path: /etc/motd\n" +
			"    name: motd\n    use: file\n",
		"action.file.content": "spec:\n  actions:\n  - with:\n      path: /etc/motd\n      content: |\n" +
			"        kind: of text\n        # no comment\n    name: motd\n    use: file\n",
		"action.wipe.disk.serial": "spec:\n  actions:\n  # About the next one.\n" +
			"  - {name: wipe, use: wipe, with: {disk: {serial: S1}}}\n",
		"template.spec.actions.name": "spec:\n  actions:\n  - name: a\n    use: noop\n",
		"template.spec.actions": "spec:\n  # What is done.\n  actions:\n  - with:\n      path: /etc/motd\n" +
			"      content: |\n" +
			"        kind: of text\n        # no comment\n    name: motd\n    use: file\n  # About the next one.\n" +
			"  - {name: wipe, use: wipe, with: {disk: {serial: S1}}}\n  - name: a\n    use: noop\n" +
			"  - name: b\n    use: noop\n  # ...\n",
		"machine.labels":           "labels:\n  pool: web   # chosen by people\n",
		"machine.spec.nics.mac":    "spec:\n  nics:\n  - mac: \"52:54:00:00:00:01\"\n",
		"machine.spec.bmc.console": "",
		"machine.spec.bmc.secret":  "spec:\n  bmc:\n    protocol: ipmi\n    address: 10.0.8.11\n    secret: bmc\n",
		"machine.name":             "",
	} {
		head := map[byte]string{'m': "kind: Machine\nname: m1\n", 't': "kind: Template\nname: long\n",
			'a': "kind: Template\nname: long\n"}[path[0]]
		if want != "" {
			want = head + want
		}
		if diff := cmp.Diff(want, all[path]); diff != "" {
			t.Errorf("%s: %s", path, diff)
		}
	}
	for path, text := range all {
		checkExample(t, path, text)
	}
}

// An example file that cannot be read is an error with its name.
func TestBadExamples(t *testing.T) {
	for text, want := range map[string]string{"kind: [": "bad.yaml: ", "name: x\n": "bad.yaml: a document has no kind",
		"# nothing\n": "bad.yaml: a document has no kind"} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "bad.yaml"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := readExamples(dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}
