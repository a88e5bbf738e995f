// Package release_test builds what a release has, and checks it.
package release_test

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// version is no tag, as the working tree may have changes.
const version = "v0.3.1-test1"

// architectures are those that the test builds: that of this computer, and with TRIVET_SOAK=1 all that a release has.
func architectures() []string {
	if os.Getenv("TRIVET_SOAK") != "" {
		return []string{"amd64", "arm64"}
	}
	return []string{runtime.GOARCH}
}

// A release has the files that are documented, with their sums. It is the same when it is built again, in another
// environment; and its programs are static, have the version, and no path of the computer that they were built on.
func TestRelease(t *testing.T) {
	first, second := filepath.Join(t.TempDir(), "first"), filepath.Join(t.TempDir(), "second")
	build(t, first, "umask 022; export TZ=UTC")
	build(t, second, "umask 077; export TZ=Asia/Tokyo GOAMD64=v3 CGO_ENABLED=1 GOFLAGS=-mod=mod")
	files := readAll(t, first)
	if again := readAll(t, second); !maps.EqualFunc(files, again, bytes.Equal) {
		t.Errorf("two builds differ: %v and %v", sums(files), sums(again))
	}
	want := []string{"NOTES", "SHA256SUMS"}
	for _, arch := range architectures() {
		program := "trivet-" + version + "-linux-" + arch
		want = append(want, program, program+".cdx.json", "trivet_0.3.1~test1_"+arch+".deb")
		checkProgram(t, filepath.Join(first, program), files[program], arch)
		checkBOM(t, filepath.Join(first, program), files[program+".cdx.json"])
	}
	slices.Sort(want)
	if got := slices.Sorted(maps.Keys(files)); !slices.Equal(got, want) {
		t.Errorf("it has %q, want %q", got, want)
	}
	checkSums(t, files)
	if notes := string(files["NOTES"]); !strings.HasPrefix(notes, "## v") || strings.Count(notes, "\n## ") > 0 {
		t.Errorf("the notes are no section:\n%.300s", notes)
	}
}

// build builds the release after commands of the shell.
func build(t *testing.T, dir, environment string) {
	t.Helper()
	args := append([]string{"-c", environment + `; exec ../../packaging/release/build "$@"`, "sh", version, dir},
		architectures()...)
	cmd := exec.Command("sh", args...)
	cmd.Env = append(os.Environ(), "DEB_COMPRESSION=none")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", cmd, err, out)
	}
}

func readAll(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for _, e := range entries {
		if files[e.Name()], err = os.ReadFile(filepath.Join(dir, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

func sums(files map[string][]byte) (lines []string) {
	for _, name := range slices.Sorted(maps.Keys(files)) {
		lines = append(lines, fmt.Sprintf("%x  %s", sha256.Sum256(files[name]), name))
	}
	return lines
}

// checkSums checks that SHA256SUMS has the sums of all other files.
func checkSums(t *testing.T, files map[string][]byte) {
	t.Helper()
	got := strings.Fields(string(files["SHA256SUMS"]))
	others := maps.Clone(files)
	delete(others, "SHA256SUMS")
	if want := strings.Fields(strings.Join(sums(others), "\n")); !slices.Equal(got, want) {
		t.Errorf("SHA256SUMS has %q, want %q", got, want)
	}
}

func checkProgram(t *testing.T, path string, program []byte, arch string) {
	t.Helper()
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	for key, want := range map[string]string{"GOOS": "linux", "GOARCH": arch, "CGO_ENABLED": "0", "-trimpath": "true"} {
		if settings[key] != want {
			t.Errorf("%s: %s is %q, want %q", arch, key, settings[key], want)
		}
	}
	source, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(program, []byte(source)) || bytes.Contains(program, []byte(os.Getenv("HOME")+"/go/")) {
		t.Errorf("%s: it contains a path of this computer", arch)
	}
	if arch != runtime.GOARCH {
		return
	}
	if out, err := exec.Command(path, "--version").Output(); err != nil || !strings.Contains(string(out), version) {
		t.Errorf("--version: %q, %v", out, err)
	}
}

// bom is what is read of a bill of materials in CycloneDX JSON.
type bom struct {
	BOMFormat   string `json:"bomFormat"`
	SpecVersion string `json:"specVersion"`
	Metadata    struct {
		Component component `json:"component"`
	} `json:"metadata"`
	Components   []component `json:"components"`
	Dependencies []struct {
		Ref       string   `json:"ref"`
		DependsOn []string `json:"dependsOn"`
	} `json:"dependencies"`
}

type component struct {
	Ref     string `json:"bom-ref"`
	Type    string `json:"type"`
	Name    string `json:"name"`
	Version string `json:"version"`
	PURL    string `json:"purl"`
	Hashes  []struct {
		Alg     string `json:"alg"`
		Content string `json:"content"`
	} `json:"hashes"`
}

// checkBOM checks that a bill of materials lists each module that the program has, with its version and hash, and
// nothing else.
func checkBOM(t *testing.T, program string, text []byte) {
	t.Helper()
	var b bom
	if err := json.Unmarshal(text, &b); err != nil {
		t.Fatal(err)
	}
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	main := b.Metadata.Component
	if b.BOMFormat != "CycloneDX" || b.SpecVersion != "1.6" || main.Name != info.Main.Path || main.Version != version ||
		main.Type != "application" {
		t.Errorf("the document: %+v", main)
	}
	want := map[string]string{"std " + info.GoVersion: ""}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		want[m.Path+" "+m.Version] = m.Sum
	}
	got, refs := map[string]string{}, map[string]bool{main.Ref: true}
	for _, c := range b.Components {
		sum := ""
		for _, h := range c.Hashes {
			raw, err := hex.DecodeString(h.Content)
			if err != nil || h.Alg != "SHA-256" {
				t.Errorf("%s: %+v, %v", c.Name, h, err)
			}
			sum = "h1:" + base64.StdEncoding.EncodeToString(raw)
		}
		got[c.Name+" "+c.Version] = sum
		refs[c.Ref] = true
		if c.Type != "library" || !strings.HasPrefix(c.PURL, "pkg:golang/"+c.Name+"@") {
			t.Errorf("a component: %+v", c)
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("the components are\n%v\nwant\n%v", got, want)
	}
	for _, d := range b.Dependencies {
		for _, ref := range append(d.DependsOn, d.Ref) {
			if !refs[ref] {
				t.Errorf("%s depends on %s, which is no component", d.Ref, ref)
			}
		}
	}
}

// What cannot be a release is refused, and leaves nothing.
func TestReleaseIsRefused(t *testing.T) {
	for version, want := range map[string]string{
		"v0.3.1-dirty": "the working tree has changes; commit them first",
		"v9.9.9":       "CHANGELOG.md has no section ## v9.9.9",
	} {
		dir := t.TempDir()
		out, err := exec.Command("../../packaging/release/build", version, filepath.Join(dir, "out"), "amd64").CombinedOutput()
		if err == nil || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v: %s", version, err, out)
		}
		left, err := filepath.Glob(filepath.Join(dir, "*", "*"))
		if err != nil || len(left) > 0 {
			t.Errorf("%s: it left %q, %v", version, left, err)
		}
	}
}
